"""How memories bear on a question: which of them answer it, which are outdated, and whether any answers it.

The measurements behind the constants are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import dist

from mindful.conversation.clarification import of_names
from mindful.conversation.expected import (
    adds,
    answers,
    asks_for_names,
    excerpt,
    grounds,
    lacks_thing,
    may_answer,
    name_told,
    plain,
)
from mindful.conversation.near import Near, Stored
from mindful.conversation.statement import declares
from mindful.core.pattern import IGNORECASE, linear
from mindful.core.ports import Database, Row, Vector
from mindful.core.vector import to_text
from mindful.models.runtime import FoundEmbedder

LONGEST = 300
"""Characters of a message that is judged, and of a memory that a newer one may replace."""
ANSWERED = 0.4
"""Least score of a memory that answers a question; see _scores."""
_BESIDE = 0.1
"""How much less a memory may score than the best one where the names of several are asked for."""
_BEHIND = 0.15
"""How much less a memory may score than the best one where one thing is asked for."""
_SURELY = 0.5
"""Score from which a memory answers whatever the question resembles."""
_WHOLE = 0.7
"""Weight of the whole question's similarity; the rest is that of the words that the memory lacks."""
_OTHER_NAME = 0.2
"""Subtracted from the score where the memory lacks a name or a number of the question."""
_OTHER_OWN = 0.05
"""Subtracted where it lacks what the user calls their own in the question."""
_OTHER_THING = 0.2
"""Subtracted where it lacks the noun that the question is about."""
_NAMED = 0.2
"""Added where it gives the name that is asked for, by its form."""
_SAME = 0.6
"""Cosine similarity from which a memory is shown for a request that is not about the user, as for a poem."""
_ALIKE = 0.6
"""Cosine similarity from which two memories about the same words state the same thing."""
_CHANGED = linear(
    r"\b(?:now|new|newly|moved|changed|switched|replaced|instead|from now on|no longer|any ?more|become|became|raised|"
    r"lowered|increased|reduced|rose|risen|fell|fallen|grew|grown|dropped|more expensive|cheaper|dearer|postponed|"
    r"delayed|rescheduled|extended|extension|swapped|renamed|repainted|coat of|quit|gave up|given up|(?:up|down) to|"
    r"by now|meanwhile)\b",
    IGNORECASE,
)
"""Words by which a statement says that something is not as before."""
_CHANGED_ALIKE = 0.3
"""Cosine similarity from which such a statement replaces an older one."""
_ASKED_BEFORE = 0.1
"""Gain in cosine similarity to the question from which a newer memory is the question itself, asked before in a form
that `_mindful.asks` does not know. A statement that replaces another resembles the question about as much."""
_NEAR = 0.35
"""Cosine similarity from which a memory that shares a word with the question is about the same thing."""
_QUOTED = 0.3
"""Cosine similarity from which a memory is quoted beside the statement that the answer is unknown."""
_MOST_QUOTED = 2
_SEVERAL = linear(r"\b(?:are|were|both|all|which of|names of|list)\b", IGNORECASE)
"""Forms of questions that ask for more than one thing, so that no statement replaces another."""
_ASKS = linear(
    r"\b(?:who|whose|whom|when|where|which|what|"
    r"how (?:many|much|long|old|far|tall|big|often|deep|high|wide|heavy|large|fast|late|early))\b",
    IGNORECASE,
)
_PHRASE = linear(r"^\W*(?:and )?(?:the|my|our)\b[^?]{1,80}\?\W*$", IGNORECASE)
"""A question without a verb: "The code of the safe?"."""
_TELLS_NAME = linear(r"\b(?:your (?:\w+ )?name is|you are|you're|call(?:ed)? you|you go by) (.*)", IGNORECASE)
_DENIES = linear(r"\b(?:no|not|never|cannot)\b|n['\u2019]t\b", IGNORECASE)
_NUMBER = linear(r"\d+")
_NAME = linear(r"(?<=[^\W.!?:] )[^\W\d_a-z]\w+")
"""A capitalized word within a sentence."""
_PART = linear(r"\d+|[^\W\d_]+")
_IDENTIFIER = linear(r"\b\d[\d.]*[A-Za-z]?\b")
_OWNED = linear(r"\b(?:my|our) (?:new |old )?([^\W\d]+)", IGNORECASE)
_DONE = linear(r"\bdid (?:i|we)\b|\bdo for (?:a living|work)\b", IGNORECASE)
"""Past deeds and the work of the user, which only the user and their memories can know."""
_MINE = linear(
    r"\b(?:what|who|where|when|which \w+|how (?:old|tall|long|big|far|much|many|heavy|deep|high))"
    r"(?:'s| is| are| was| were) (?:my|our)\b|\bhow (?:old|tall|heavy) (?:am i|are we)\b|"
    r"\b(?:what(?:'s| is)) the (?:[\w'\u2019-]+ ){0,2}(?:password|code|pin|combination|phone number)\b|"
    r"\b(?:who|whose|whom|when|where|(?:which|what) \w+|how (?:much|many)\b[^?]{0,40}) (?:do|does|did|have|has|am|are) "
    r"(?:i|we|my \w+|our \w+)\b(?! (?:need|have to|get|find|make|use|put|begin|start|say|write|know)\b)|"
    r"\bwhat (?:do|does|did|am|have|has) (?:i|we|my \w+|our \w+) "
    r"(?:do for|eat|drink|drive|own|like|love|hate|collect|play|study|teach|"
    r"earn|pay|weigh|allergic|order|ordered|buy|bought|promise|promised|decide|decided|plan|planned)\b",
    IGNORECASE,
)
"""Questions for a fact of the user's own, in a form that requests for advice do not have."""
_WHETHER = linear(
    r"^\W*(?:(?:do|does|did) (?:i|we|my \w+|our \w+) (?:ever |still |already |really |also )?"
    r"(?:have|own|live|work|like|love|hate|eat|drink|smoke|drive|play|speak|study|teach|collect|pay|keep|prefer)"
    r"(?! to\b)\b|(?:have|has) (?:i|we|my \w+|our \w+)|(?:am i|are we) (?:a|an|the|in|on|at|from|married|single|"
    r"divorced|engaged|related|allergic|vegetarian|vegan|retired|employed|unemployed|insured|diabetic|pregnant))\b",
    IGNORECASE,
)
"""Questions for a yes or no about the user's own matters."""
_SOMEBODY = linear(
    r"(?<![A-Z]\w )(?<!the )(?<=[^\W.!?:] )"
    r"(?!(?:January|February|March|April|May|June|July|August|September|October|November|December|"
    r"Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|Christmas|Easter)\b)"
    r"[A-Z][a-z\u00df-\u024f]+(?:'s|\u2019s)?(?! [A-Z])\b"
)
"""A name of one word, as users call people they know."""
_OWN = linear(r"\b(?:i|me|my|mine|we|us|our|ours)\b", IGNORECASE)
_OWN_MATTERS = (
    *("What is my mother's name?", "When is my next appointment?", "Where did I leave my glasses?"),
    *(
        "How much do I pay for the phone contract?",
        "Who is my doctor?",
        "What did we decide about the garden?",
    ),
    *("Where does my friend Daniel work?", "When is Julia's birthday?", "What is the code of the safe?"),
    *("Which room is the workshop in?", "How old is our daughter?", "Who is responsible for the invoices?"),
    *("What did Martin say at the meeting?", "When does the new contract start?", "Where is the charger?"),
    "How many guests are coming on Saturday?",
)
_OTHER_MATTERS = (
    *("What is the capital of Spain?", "Who invented the telephone?", "When did the Roman empire fall?"),
    *("How many bones does a human have?", "What is the meaning of the word ubiquitous?"),
    *("Why do leaves turn red in autumn?", "Which country is the largest?", "Who won the world cup in 2006?"),
    *("How do I cook rice?", "What should I do when I cannot sleep?", "Can you recommend a good movie?"),
    *("How can I learn to draw?", "Tell me a story.", "How are you today?", "What can you do for me?"),
    "Write a letter of thanks.",
)
"""Questions to compare a message with: about what only the user and their memories can know, and others."""
_CLOSEST = 3
"""Closest questions of each kind whose mean similarity counts."""
_LEAST = {
    "done": -1,
    "mine": -0.1,
    "named": -0.05,
    "own": 0.02,
    "person": 0.035,
    "certain": 0.01,
    "same": 0.06,
    "near": 0.08,
    "else": 0.12,
}
"""Least margin by which a message is closer to the first kind: about what the user did, in a form for facts of one's
own, with a name that a memory near it has, with a pronoun of the first person, with a name of one word, about a certain
one of the things in a memory, with a memory about the same thing, with a memory that bears on it, else."""
_ABOUT = 0.45
"""Cosine similarity from which a memory is about the things of the question."""
_CERTAIN = linear(r"(?<=[^.!?] )the\b|\b\d+[a-z]\b")
BEARS = 0.25
"""Cosine similarity below which a memory has nothing to do with the message, even if it shares a word with it."""
_examples: dict[tuple[str, str], list[Vector]] = {}
"""Embeddings of the questions, by the embedder's name and checksum."""


@dataclass(frozen=True)
class Bearing:
    """How memories bear on a question."""

    question: str
    embedder: str
    similarities: dict[int, float]
    beyond: dict[int, str]
    """The question's words that each memory lacks."""
    held: dict[int, str]
    """The question's words that each memory has."""
    contents: dict[int, str]
    requested: bool = False
    """Whether the message is a request around the question, such as "Tell me ..."."""
    own: bool = False
    """Whether the message asks for a fact that only the user and their memories can know."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """How well each memory answers such a question, see _scores."""
    naming: str = ""
    """The memory that names what the message describes, where the memory that answers is about that name."""
    everything: bool = False
    """Whether the message asks for all that is known of something: all answering memories belong to the answer."""
    own_name: str | None = None
    """The user's own name, where the message asks for it."""

    @property
    def asks(self) -> bool:
        """Whether the message asks for a fact."""
        return self.requested or (_ASKS.search(self.question) is not None and not declares(self.question))

    @property
    def unknown(self) -> bool:
        """Whether the message asks for a fact that only memories can tell, and none tells it."""
        return self.own and not self.answering and self.own_name is None

    @property
    def answering(self) -> list[int]:
        """The memories that answer the question, the best first."""
        best = max(self.scores.values(), default=0.0)
        least = ANSWERED
        if best >= ANSWERED and asks_for_names(self.question):
            least = min(ANSWERED, best - _BESIDE)
        elif not self._several:
            least = max(ANSWERED, best - _BEHIND)
        found = [id_ for id_, score in self.scores.items() if score >= least]
        return sorted(found, key=lambda id_: -self.scores[id_])

    @property
    def best(self) -> float:
        """The score of the memory that answers best; 0 without one."""
        return max((self.scores[id_] for id_ in self.answering), default=0.0)

    def near(self) -> list[int]:
        """Return the memories about the same thing as the question."""
        return [id_ for id_, value in self.similarities.items() if value >= _NEAR and self.held[id_]]

    def says_anything(self, memory: int) -> bool:
        """Return whether a memory may be shown for the message: it is not the same question, asked before."""
        return not self.asks or memory not in self.contents or adds(self.question, self.contents[memory])

    def concerns(self, memory: int, compared: bool) -> bool:
        """Return whether a weighed memory has to do with the message.

        Recall compares only the nearest memories with it; others came by a word alone. Words do not tell: "Write about
        rain." shares "write" with every text about disks. Where no fact is asked for, a memory must be about the same.
        """
        content, similarity = self.contents.get(memory, ""), self.similarities.get(memory, 0.0)
        if self.names(memory) or any(one in content for one in _IDENTIFIER.findall(self.question)):
            return True
        asks = self.asks or _PHRASE.search(self.question) is not None
        if not asks and _OWN.search(self.question) is None:
            return similarity >= _SAME
        if not asks:
            return similarity >= _ABOUT or memory in self.near()
        if not self.own and similarity < _ABOUT and lacks_thing(self.question, content):
            return False
        return compared or similarity >= BEARS

    def after(self, naming: str) -> Bearing:
        """Return the same for the memories that tell of a name, after the memory that gives it."""
        return replace(self, naming=naming)

    def replaced(self, gone: Mapping[int, int]) -> Bearing:
        """Return the same without the memories that newer ones replace; these answer as well as the replaced ones."""
        scores = dict(self.scores)
        for old, new in gone.items():
            scores[new] = max(scores.get(new, 0.0), scores.pop(old, 0.0))
        return replace(self, scores={id_: score for id_, score in scores.items() if id_ not in gone})

    def is_grounded(self, reply: str, shown: Collection[int]) -> bool:
        """Return whether a reply has words that answer the question, of one of the memories shown.

        A question for several things needs words of each memory.
        """
        said = {word.lower() for word in _PART.findall(reply)}
        if self.own_name is not None:
            told = _TELLS_NAME.search(reply)
            return told is not None and told[1].lower().startswith(self.own_name.lower())
        if not self.everything and not self.asks and _DENIES.search(reply):
            return False  # the memory is about what is asked; a small model denies it
        if name := self.name_told(shown):
            return any(part.lower() in said for part in _PART.findall(name))
        enough = all if self.everything else any
        rests = [
            enough(set(_PART.findall(word.lower())) - {"s"} <= said for word in words)
            for id_ in self._answering_of(shown)
            if (words := grounds(self.question, self.contents[id_]))
        ]
        return not rests or (all(rests) if self._several else any(rests))

    def name_told(self, shown: Collection[int]) -> str | None:
        """Return the name that the best of the memories shown gives to what the question asks the name of."""
        best = next((id_ for id_ in self.answering if id_ in shown), None)
        return (
            self.own_name if best is None or self.own_name else name_told(self.question, self.contents[best])
        )

    def quoted(self, shown: Collection[int]) -> str:
        """Return the sentences of memories that answer the question: of the best one, or of all for several things."""
        ids = self._answering_of(shown)
        ids = ids if self._several else ids[:1]
        sentences = [
            self.contents[id_]
            if self.everything and len(self.contents[id_]) <= LONGEST
            else excerpt(self.question, self.contents[id_])
            for id_ in ids
        ]
        return " ".join(f'"{sentence}"' for sentence in [*filter(None, [self.naming]), *sentences])

    @property
    def _several(self) -> bool:
        return self.everything or _SEVERAL.search(self.question) is not None

    def _answering_of(self, shown: Collection[int]) -> list[int]:
        """Return the answering memories that are shown. Where everything is asked for, turns show the others."""
        return [id_ for id_ in self.answering if self.everything or id_ in shown]

    def nearest(self, rows: Sequence[Row]) -> list[str]:
        """Return the memories most similar to the question, as far as they are similar enough to be quoted."""
        near = [row for row in rows if self.similarities.get(row["id"], 0) >= _QUOTED]
        near = [row for row in near if len(row["content"]) <= LONGEST and row["kind"] != "summary"]
        near.sort(key=lambda row: -self.similarities[row["id"]])
        return [row["content"] for row in near[:_MOST_QUOTED]]

    def names(self, memory: int) -> set[str]:
        """Return the names of the question that a memory has."""
        return set(_NAME.findall(self.question)) & set(_PART.findall(self.held.get(memory, "")))

    def newest_first(self, rows: Sequence[Row]) -> list[Row]:
        """Sort memories with the same words of the question by time, at the place of the first of them."""
        keys = [self.beyond[row["id"]] if self.has_subject(row["id"]) else str(row["id"]) for row in rows]
        first = {key: keys.index(key) for key in keys}
        order = sorted(
            zip(keys, rows, strict=True), key=lambda one: (first[one[0]], -one[1]["said_at"], -one[1]["id"])
        )
        return [row for _, row in order]

    def has_subject(self, memory: int) -> bool:
        """Return whether a memory has a word of the question beside names."""
        return bool(set(_PART.findall(self.held.get(memory, ""))) - self.names(memory) - {"s"})


def weigh(
    db: Database,
    message: str,
    embedder: FoundEmbedder,
    vector: str,
    contents: dict[int, str],
    near: Near | None = None,
) -> Bearing:
    """Compare a question with memories, given by their ids, or with other texts by `near`."""
    question, ids = plain(message), list(contents)
    if question != message:
        vector = to_text(embedder.embed([question])[0])
    near = near or Stored(db, embedder)
    rows = near.compared(question, vector, ids)
    similarities = {row["id"]: row["similarity"] for row in rows}
    beyond = {row["id"]: row["lacked"] for row in rows}
    held = {row["id"]: row["held"] for row in rows}
    found = Bearing(question, embedder.name, similarities, beyond, held, contents, question != message)
    if not found.asks:
        if _WHETHER.search(question) is None:
            return found
        return replace(found, own=True, scores={id_: similarities[id_] for id_ in found.near()})
    own = _margin(embedder, found) >= _LEAST[_kind(found)]
    if not own and not found.near():
        return found
    scores = _scores(near, embedder, found)
    own = own or max(scores.values(), default=0.0) >= _SURELY
    return replace(found, own=own, scores=scores if own else {})


def outdated(db: Database, bearing: Bearing, rows: Sequence[Row]) -> dict[int, int]:
    """Return the memories that a newer one replaces, and which: both are alike and have the same words of the question.

    A name alone does not count, as a person has many facts.
    """
    short = [row for row in rows if row["kind"] in ("fact", "message") and len(row["content"]) <= LONGEST]
    alike = [row for row in short if bearing.held.get(row["id"])]
    if len(alike) < 2 or _SEVERAL.search(bearing.question):
        return {}
    if of_names(bearing.question, [row["content"] for row in alike]) is not None:
        return {}  # they are about different people
    ids = [row["id"] for row in alike]
    found = db.one(
        "select _mindful.recall_nearness($1, $2) as found", ("text", "bigint[]"), (bearing.embedder, ids)
    )["found"]
    nearness = {(a, b): found[at * len(ids) + to] for at, a in enumerate(ids) for to, b in enumerate(ids)}
    return {
        old["id"]: new["id"]
        for old in alike
        for new in sorted(alike, key=lambda row: (row["said_at"], row["id"]))
        if (new["said_at"], new["id"]) > (old["said_at"], old["id"])
        and _replaces(bearing, new, old, nearness[old["id"], new["id"]])
    }


def _replaces(bearing: Bearing, new: Row, old: Row, nearness: float) -> bool:
    if _CHANGED.search(new["content"]) and may_answer(bearing.question, new["content"]):
        before = set(_PART.findall(bearing.held[old["id"]]))
        shared = set(_PART.findall(bearing.held[new["id"]])) & before
        names = bearing.names(old["id"])
        return (
            nearness >= _CHANGED_ALIKE and names <= shared and len(shared - names) * 2 > len(before - names)
        )
    return (
        bearing.beyond[new["id"]] == bearing.beyond[old["id"]]
        and bearing.has_subject(old["id"])
        and nearness >= _ALIKE
        and bearing.similarities[new["id"]] - bearing.similarities[old["id"]] < _ASKED_BEFORE
    )


def _scores(near: Near, embedder: FoundEmbedder, bearing: Bearing) -> dict[int, float]:
    """Return how well each memory that may answer the question does: a weighted mean of two cosine similarities.

    They are those of the question, and of its words that the memory lacks, 1 if it lacks none. What is asked for is
    among the words that a memory about another matter lacks.
    """
    may_be = answers(bearing.question)
    ids = [id_ for id_ in bearing.similarities if may_be(bearing.contents[id_])]
    lacking = {id_: words for id_ in ids if (words := bearing.beyond[id_])}
    texts = list(dict.fromkeys(lacking.values()))
    rest: dict[int, float] = {}
    if texts:
        vectors = dict(zip(texts, map(to_text, embedder.embed(texts)), strict=True))
        found = near.similarities(list(lacking), [vectors[words] for words in lacking.values()])
        rest = dict(zip(lacking, found, strict=True))
    return {
        id_: _WHOLE * bearing.similarities[id_] + (1 - _WHOLE) * rest.get(id_, 1.0) - _mismatch(bearing, id_)
        for id_ in ids
    }


def _mismatch(bearing: Bearing, memory: int) -> float:
    content = bearing.contents[memory].lower()
    named = [*_NAME.findall(bearing.question), *_IDENTIFIER.findall(bearing.question)]
    owned = {word.lower() for word in _OWNED.findall(bearing.question)}
    lacked = set(_PART.findall(bearing.beyond[memory].lower()))
    return (
        _OTHER_NAME * any(name.lower() not in content for name in named)
        + _OTHER_OWN * bool(owned & lacked)
        + _OTHER_THING * lacks_thing(bearing.question, bearing.contents[memory])
        - _NAMED * (name_told(bearing.question, bearing.contents[memory]) is not None)
    )


def _kind(bearing: Bearing) -> str:
    if _DONE.search(bearing.question):
        return "done"
    if _MINE.search(bearing.question):
        return "mine"
    near = bearing.near()
    nearest = max((bearing.similarities[id_] for id_ in near), default=0.0)
    if nearest >= _ABOUT and _OWN.search(bearing.question):
        return "mine"
    if any(map(bearing.names, near)):
        return "named"
    if _OWN.search(bearing.question):
        return "own"
    if _SOMEBODY.search(bearing.question):
        return "person"
    if nearest >= _ABOUT and _CERTAIN.search(bearing.question):
        return "certain"
    if near:
        return "same"
    return "near" if max(bearing.similarities.values(), default=0) >= BEARS else "else"


def invents(reply: str, sources: Iterable[str]) -> bool:
    """Return whether a reply has a number or a name that none of its sources has."""
    known = {part.lower() for source in sources for part in _PART.findall(source)}
    claims = [*_NUMBER.findall(reply), *_NAME.findall(reply)]
    return any(part.lower() not in known for claim in claims for part in _PART.findall(claim))


def _margin(embedder: FoundEmbedder, bearing: Bearing) -> float:
    """Return by how much a message is closer to questions about one's own matters than to others."""
    own = tuple(embedder.embed([bearing.question])[0])  # embedded for its similarities already
    key = embedder.name, embedder.sha256
    if key not in _examples:
        _examples[key] = [*map(tuple, embedder.embed([*_OWN_MATTERS, *_OTHER_MATTERS]))]
    near = [1 - dist(own, one) ** 2 / 2 for one in _examples[key]]  # the cosine similarity of unit vectors
    kinds = near[: len(_OWN_MATTERS)], near[len(_OWN_MATTERS) :]
    first, second = (sum(sorted(kind)[-_CLOSEST:]) / _CLOSEST for kind in kinds)
    return first - second
