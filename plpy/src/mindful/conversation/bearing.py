"""How memories bear on a question: which of them answer it, which are outdated, and whether any answers it.

The measurements behind the constants are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from mindful.conversation.asked import thing_named
from mindful.conversation.contrast import contrasts
from mindful.conversation.expected import (
    EMPTY,
    adds,
    answers,
    asks_for_names,
    excerpt,
    grounds,
    lacks_head,
    lacks_thing,
    name_in,
    plain,
    telling,
)
from mindful.conversation.matter import (
    ABOUT,
    BEARS,
    OWN,
    Common,
    asks,
    asks_whether,
    is_general,
    is_own,
    may_ask,
)
from mindful.conversation.near import Near, Stored
from mindful.conversation.spelling import spelled
from mindful.conversation.statement import declares
from mindful.core.pattern import CAPITAL, IGNORECASE, linear
from mindful.core.ports import Database, Row
from mindful.core.vector import to_text
from mindful.models.runtime import FoundEmbedder

LONGEST = 300
"""Characters of a message that is judged, and of a memory that a newer one may replace."""
ANSWERED = 0.44
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
"""Subtracted from the score where the memory lacks a name, or a time such as "last season", of the question."""
_OTHER_NUMBER = 0.3
"""Subtracted where it lacks a number of the question: what is known of hive 3 tells nothing of hive 1."""
_OTHER_OWN = 0.05
"""Subtracted where it lacks what the user calls their own in the question."""
_OTHER_THING = 0.2
"""Subtracted where it lacks the noun that the question is about."""
_OTHER_HEAD = 0.1
"""Subtracted where it has only the words before that noun: "ward" of "the ward manager"."""
_OTHER_ONE = 0.3
"""Subtracted where it tells of another one of the things asked for: the away kit is not the home kit."""
_NAME_ALONE = 0.1
"""Subtracted where it has no word of the question beside names: a person has many facts."""
_NAMED = 0.2
"""Added where it gives the name that is asked for, by its form."""
_SAME = 0.6
"""Cosine similarity from which a memory is shown for a request that is not about the user, as for a poem."""
_NEAR = 0.35
"""Cosine similarity from which a memory that shares a word with the question is about the same thing."""
_QUOTED = 0.3
"""Cosine similarity from which a memory is quoted beside the statement that the answer is unknown."""
_MOST_QUOTED = 2
_READ = 2000
"""Characters of a memory in which names are looked for."""
_ASKING = frozenset(
    ("how", "where", "which", "why", "whose", "will", "may", "can", "do", "does", "did", "has", "have")
)
"""Words of questions that titles begin with, or that are names too."""
SEVERAL = linear(r"(?<!\bwhen )\b(?:are|were|both|all|which of|names of|list)\b", IGNORECASE)
"""Forms of questions that ask for more than one thing, so that no statement replaces another."""
_TELLS_NAME = linear(r"\b(?:your (?:\w+ )?name is|you are|you're|call(?:ed)? you|you go by) (.*)", IGNORECASE)
_DENIES = linear(r"\b(?:no|not|never|cannot)\b|n['\u2019]t\b", IGNORECASE)
_KIND = frozenset(("is", "was", "a", "an"))
_NUMBER = linear(r"\d+")
_NAME = linear(rf"(?:(?<=[^\W.!?:] )|(?<=\b(?:Dr|Mr|Ms|St)\. )|(?<=\bMrs\. )|(?<=\bProf\. )){CAPITAL}\w+")
"""A capitalized word within a sentence, or after a title."""
_TITLE = linear(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St)\.? ")
_PART = linear(r"\d+|[^\W\d_]+")
_IDENTIFIER = linear(r"\b\d[\d.]*[A-Za-z]?\b")
_FRAME = linear(
    r"\b(last|next|previous) (?:season|year|month|week|winter|spring|summer|autumn|fall|term|semester)\b",
    IGNORECASE,
)
OWNED = linear(r"\b(?:my|our) (?:new |old )?([^\W\d]+)", IGNORECASE)


class Bearing(NamedTuple):
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
    """Whether the message asks by its matter, or by the request around it, such as "Tell me ..."."""
    own: bool = False
    """Whether the message asks for a fact that only the user and their memories can know."""
    scores: Mapping[int, float] = MappingProxyType({})
    """How well each memory answers such a question, see _scores."""
    naming: str = ""
    """The memory that names what the message describes, where the memory that answers is about that name."""
    everything: bool = False
    """Whether the message asks for all that is known of something: all answering memories belong to the answer."""
    is_described: bool = False
    """Whether a name of the question stands for what the message describes, so that it says more than a name."""
    own_name: str | None = None
    """The user's own name, where the message asks for it."""
    outdated: Mapping[int, int] = MappingProxyType({})
    """The memories that newer ones replace, and which."""

    @property
    def asks(self) -> bool:
        """Whether the message asks for a fact."""
        return self.requested or (asks(self.question) and not declares(self.question))

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
        if is_general(self.question) or (not self.asks and OWN.search(self.question) is None):
            return similarity >= _SAME
        if not self.asks:
            return similarity >= ABOUT or memory in self.near()
        if not self.own and similarity < ABOUT and lacks_thing(self.question, content):
            return False
        return compared or similarity >= BEARS

    def after(self, naming: str) -> Bearing:
        """Return the same for the memories that tell of a name, after the memory that gives it."""
        return self._replace(naming=naming)

    def replaced(self, gone: Mapping[int, int]) -> Bearing:
        """Return the same without the memories that newer ones replace; these answer as well as the replaced ones."""
        scores = dict(self.scores)
        for old, new in gone.items():
            scores[new] = max(scores.get(new, 0.0), scores.pop(old, 0.0))
        return self._replace(
            scores={id_: score for id_, score in scores.items() if id_ not in gone}, outdated=gone
        )

    def is_grounded(self, reply: str, shown: Collection[int]) -> bool:
        """Return whether a reply has words that answer the question, of one of the memories shown.

        A question for several things needs words of each memory. Where everything is asked for, memories are quoted.
        """
        said = parts([reply])
        if self.own_name is not None:
            told = _TELLS_NAME.search(reply)
            return told is not None and told[1].lower().startswith(self.own_name.lower())
        if self.everything:
            return False  # a small model adds a profession to a name
        if _DENIES.search(reply) and not self._is_denied(shown):
            return False  # the memory is about what is asked; a small model denies it
        if any(new in shown and self._is_of_old(said, old, new) for old, new in self.outdated.items()):
            return False  # the newer memory names the older answer too
        if name := self.name_answer(shown):
            if self._tells_kind(reply, name):
                return False  # "Misha is a cat." tells what the user knows
            return any(part.lower() in said for part in _PART.findall(_TITLE.sub("", name)))
        rests = [
            any(set(_PART.findall(word.lower())) - {"s"} <= said for word in words)
            for id_ in self._answering_of(shown)
            if (words := grounds(self.question, self.contents[id_]))
        ]
        return not rests or (all(rests) if self._several else any(rests))

    def _tells_kind(self, reply: str, name: str) -> bool:
        """Return whether a reply says of the name that is asked for only what the question says it is the name of."""
        said, thing = set(_PART.findall(reply.lower())), thing_named(self.question)
        rest = said - set(_PART.findall(name.lower()))
        return thing is not None and thing in rest and rest <= _KIND | {thing}

    def _is_denied(self, shown: Collection[int]) -> bool:
        return self.asks and any(_DENIES.search(self.contents[id_]) for id_ in self._answering_of(shown))

    def _is_of_old(self, said: set[str], old: int, new: int) -> bool:
        """Return whether a reply's words tell what an older memory does, and nothing that the newer one adds."""
        before, after = self.contents[old], self.contents[new]
        told = parts(telling(self.question, before))
        return bool(told & said) and not (parts([after]) - parts([before, self.question])) & said

    def name_answer(self, shown: Collection[int]) -> str | None:
        """Return the name that the best of the memories shown gives to what the question asks the name of."""
        best = next((id_ for id_ in self.answering if id_ in shown), None)
        return self.own_name if best is None or self.own_name else name_in(self.question, self.contents[best])

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
        return self.everything or SEVERAL.search(self.question) is not None

    def _answering_of(self, shown: Collection[int]) -> list[int]:
        """Return the answering memories that are shown. Where everything is asked for, turns show the others."""
        return [id_ for id_ in self.answering if self.everything or id_ in shown]

    def nearest(
        self, rows: Sequence[Row], shown: Container[int], turns: Container[int | None] = ()
    ) -> list[str]:
        """Return the most similar of the memories and of the turns shown, as far as they are worth quoting.

        What the user said a moment ago must be about the question.
        """
        said = [row for row in rows if len(row["content"]) <= LONGEST and row["kind"] != "summary"]
        near = [row for row in said if self._is_quotable(row["id"], shown, turns)]
        may_be = answers(self.question)
        near.sort(key=lambda row: (not may_be(row["content"]), -self.similarities[row["id"]]))
        return [row["content"] for row in near[:_MOST_QUOTED]]

    def _is_quotable(self, memory: int, shown: Container[int], turns: Container[int | None]) -> bool:
        similarity = self.similarities.get(memory, 0)
        if memory in shown:
            return similarity >= _QUOTED
        return memory in turns and memory not in self.outdated and similarity >= ABOUT

    def names(self, memory: int) -> set[str]:
        """Return the names of the question that a memory has."""
        return _names(self.question) & set(_PART.findall(self.held.get(memory, "")))

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
        held = _TITLE.sub("", self.held.get(memory, ""))
        return bool(set(_PART.findall(held)) - self.names(memory) - {"s"})


def question_of(message: str) -> str:
    """Return the question of a message as it is compared with memories, without a request around it."""
    return plain(spelled(message))


def weigh(
    db: Database,
    message: str,
    embedder: FoundEmbedder,
    vector: str,
    contents: dict[int, str],
    near: Near | None = None,
    is_described: bool = False,
) -> Bearing:
    """Compare a question with memories, given by their ids, or with other texts by `near`."""
    spelt, ids = spelled(message), list(contents)
    question = plain(spelt)
    if question != message:
        vector = to_text(embedder.embed([question])[0])
    near = near or Stored(db, embedder)
    rows = near.compared(question, vector, ids)
    similarities = {row["id"]: row["similarity"] for row in rows}
    beyond = {row["id"]: row["lacked"] for row in rows}
    held = {row["id"]: row["held"] for row in rows}
    found = Bearing(
        *(question, embedder.name, similarities, beyond, held, contents),
        requested=question != spelt,
        is_described=is_described,
    )
    is_named = any(map(found.names, found.held))
    is_of_manner = not found.asks and may_ask(question, is_named)
    if is_general(question) or not (found.asks or is_of_manner or asks_whether(question, is_named)):
        return found
    own = is_own(embedder, question, _common(found))
    found = found._replace(requested=found.requested or (is_of_manner and own))
    if not own and not (found.asks and found.near()):
        return found
    scores = _scores(near, embedder, found)
    own = own or max(scores.values(), default=0.0) >= _SURELY
    return found._replace(own=own, scores=scores if own else {})


def _common(bearing: Bearing) -> Common:
    # The same question, asked before, tells nothing of what it is about, nor does another request.
    told = ((id_, bearing.contents[id_]) for id_ in bearing.similarities)
    telling = [id_ for id_, content in told if adds(bearing.question, content) and plain(content) == content]
    near = [id_ for id_ in bearing.near() if id_ in telling]
    return Common(
        max((bearing.similarities[id_] for id_ in near), default=0.0),
        max((bearing.similarities[id_] for id_ in telling), default=0.0),
        any(map(bearing.names, telling)),
    )


def _scores(near: Near, embedder: FoundEmbedder, bearing: Bearing) -> dict[int, float]:
    """Return how well each memory that may answer the question does: a weighted mean of two cosine similarities.

    They are those of the question, and of its words that the memory lacks, 1 if it lacks none. What is asked for is
    among the words that a memory about another matter lacks. Scores too low to answer are upper bounds.
    """
    may_be = answers(bearing.question) if bearing.asks else None
    # A memory about the same thing answers a yes-no question.
    about = set() if may_be else set(bearing.near())
    ids = [id_ for id_ in bearing.similarities if (may_be(bearing.contents[id_]) if may_be else id_ in about)]
    names = _names(bearing.question) | _lower_names(bearing.question, bearing.contents.values())
    most = {
        id_: _WHOLE * bearing.similarities[id_] + 1 - _WHOLE - _mismatch(bearing, id_, names) for id_ in ids
    }
    # Most memories cannot answer, whatever these words are like. To embed them takes as long as the question does.
    lacking = {
        id_: bearing.beyond[id_] for id_ in ids if bearing.beyond[id_] and most[id_] >= ANSWERED - _BESIDE
    }
    if not lacking:
        return most
    texts = list(dict.fromkeys(lacking.values()))
    vectors = dict(zip(texts, map(to_text, embedder.embed(texts)), strict=True))
    found = near.similarities(list(lacking), [vectors[words] for words in lacking.values()])
    return most | {
        id_: most[id_] - (1 - _WHOLE) * (1 - rest) for id_, rest in zip(lacking, found, strict=True)
    }


def _mismatch(bearing: Bearing, memory: int, names: Collection[str]) -> float:
    question, content = bearing.question, bearing.contents[memory]
    words = parts([content])
    named = [*names, *_FRAME.findall(question)]
    owned = {word.lower() for word in OWNED.findall(question)}
    lacked = set(_PART.findall(bearing.beyond[memory].lower()))
    return (
        _OTHER_NAME * any(not _has(words, name.lower()) for name in named)
        + _OTHER_NUMBER * bool(_numbers(question) - _numbers(content))
        + _OTHER_OWN * bool(owned & lacked)
        + _OTHER_THING * lacks_thing(question, content)
        + _OTHER_HEAD * lacks_head(question, content)
        + _OTHER_ONE * contrasts(question, content)
        + _NAME_ALONE * (bool(lacked) and not bearing.is_described and not bearing.has_subject(memory))
        - _NAMED * (name_in(question, content) is not None)
    )


def parts(texts: Iterable[str]) -> set[str]:
    """Return the words and numbers of texts in lower case."""
    return {part.lower() for text in texts for part in _PART.findall(text)}


def _names(question: str) -> set[str]:
    return set(_NAME.findall(_TITLE.sub("", question)))


def _lower_names(question: str, contents: Iterable[str]) -> set[str]:
    """Return the words of a question in lower case that memories have as names, and never otherwise."""
    if question != question.lower():
        return set()
    read = [_TITLE.sub("", content[:_READ]) for content in contents]
    words = {word for content in read for word in _PART.findall(content)}
    return {
        name.lower() for content in read for name in _NAME.findall(content) if name.lower() not in words
    } & parts([question]) - EMPTY - _ASKING


def _has(words: Iterable[str], name: str) -> bool:
    """Return whether one of the words is a name, in the plural or not."""
    return any(word in (name, name + "s", name.removesuffix("s")) for word in words)


def _numbers(text: str) -> set[str]:
    return {number.rstrip(".") for number in _IDENTIFIER.findall(text)}


def invents(reply: str, sources: Iterable[str]) -> bool:
    """Return whether a reply has a number or a name that none of its sources has."""
    known = parts(sources)
    claims = [*_NUMBER.findall(reply), *_NAME.findall(reply)]
    return any(part.lower() not in known for claim in claims for part in _PART.findall(claim))
