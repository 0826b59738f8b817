"""How memories bear on a question: which of them answer it, which are outdated, and whether any answers it.

The measurements behind the constants are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mindful.conversation.clarification import of_names
from mindful.core.pattern import IGNORECASE, linear
from mindful.core.ports import Database, Row, Vector
from mindful.core.vector import to_text
from mindful.models import runtime

LONGEST = 300
"""Characters of a message that is judged, and of a memory that a newer one may replace."""
ANSWERED = 0.42
"""Least score of a memory that answers a question; see _scores."""
_ALIKE = 0.6
"""Cosine similarity from which two memories about the same words state the same thing."""
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
    r"\b(?:who|whose|whom|when|where|which|what|how (?:many|much|long|old|far|tall|big|often))\b", IGNORECASE
)
_NUMBER = linear(r"\d+")
_NAME = linear(r"(?<=[^\W.!?:] )[^\W\d_a-z]\w+")
"""A capitalized word within a sentence."""
_PART = linear(r"\d+|[^\W\d_]+")
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
_LEAST = {"named": -0.05, "own": 0.02, "same": 0.06, "near": 0.08, "else": 0.12}
"""Least margin by which a message is closer to the first kind: with a name that a memory near it has, with a pronoun of
the first person, with a memory about the same thing, with a memory that bears on it, else."""
_BEARS = 0.25
_examples: dict[tuple[str, int], list[Vector]] = {}
"""Embeddings of the questions, by the embedder's name and dimensions."""


@dataclass(frozen=True)
class Bearing:
    """How memories bear on a question."""

    question: str
    embedder: str
    vector: str
    similarities: dict[int, float]
    beyond: dict[int, str]
    """The question's words that each memory lacks."""
    held: dict[int, str]
    """The question's words that each memory has."""

    def nearest(self, rows: Sequence[Row]) -> list[str]:
        """Return the memories most similar to the question, as far as they are similar enough to be quoted."""
        near = [row for row in rows if self.similarities.get(row["id"], 0) >= _QUOTED]
        near = [row for row in near if len(row["content"]) <= LONGEST]
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


def weigh(db: Database, question: str, embedder: str, vector: str, ids: Sequence[int]) -> Bearing:
    """Compare a question with memories."""
    rows = db.rows(
        """select w.id, w.lacked, w.held, s.similarity
           from _mindful.words_beyond($1, $2) w
           join unnest($2, _mindful.recall_similarities($3, $2, array_fill($4, array[cardinality($2)])))
               s (id, similarity) using (id)""",
        ("text", "bigint[]", "text", "text"),
        (question, list(ids), embedder, vector),
    )
    similarities = {row["id"]: row["similarity"] for row in rows}
    beyond = {row["id"]: row["lacked"] for row in rows}
    held = {row["id"]: row["held"] for row in rows}
    return Bearing(question, embedder, vector, similarities, beyond, held)


def outdated(db: Database, bearing: Bearing, rows: Sequence[Row]) -> set[int]:
    """Return the memories that a newer one replaces: both are alike and have the same words of the question.

    A name alone does not count, as a person has many facts.
    """
    short = [row for row in rows if row["kind"] in ("fact", "message") and len(row["content"]) <= LONGEST]
    alike = [row for row in short if bearing.held.get(row["id"])]
    if len(alike) < 2 or _SEVERAL.search(bearing.question):
        return set()
    if of_names(bearing.question, [row["content"] for row in alike]) is not None:
        return set()  # they are about different people
    groups = {row["id"]: bearing.beyond[row["id"]] for row in alike}
    ids = list(groups)
    found = db.one(
        "select _mindful.recall_nearness($1, $2) as found", ("text", "bigint[]"), (bearing.embedder, ids)
    )["found"]
    nearness = {(a, b): found[at * len(ids) + to] for at, a in enumerate(ids) for to, b in enumerate(ids)}
    return {
        old["id"]
        for old in alike
        for new in alike
        if (new["said_at"], new["id"]) > (old["said_at"], old["id"])
        and groups[new["id"]] == groups[old["id"]]
        and bearing.has_subject(old["id"])
        and nearness[old["id"], new["id"]] >= _ALIKE
        and bearing.similarities[new["id"]] - bearing.similarities[old["id"]] < _ASKED_BEFORE
    }


def is_unknown(db: Database, bearing: Bearing) -> bool:
    """Return whether a message asks for a fact that only memories can tell, and none tells it."""
    if not asks_of_own_matters(db, bearing):
        return False
    return max(_scores(db, bearing).values(), default=0.0) < ANSWERED


def _scores(db: Database, bearing: Bearing) -> dict[int, float]:
    """Return for each memory the mean of two cosine similarities: of the question, and of its words the memory lacks.

    The latter is 1 if it lacks none. What is asked for is among the words that a memory about another matter lacks.
    """
    lacking = {id_: words for id_, words in bearing.beyond.items() if words}
    texts = list(dict.fromkeys(lacking.values()))
    rest: dict[int, float] = {}
    if texts:
        vectors = dict(zip(texts, map(to_text, runtime.embed(db, bearing.embedder, texts)), strict=True))
        found = db.one(
            "select _mindful.recall_similarities($1, $2, $3) as found",
            ("text", "bigint[]", "text[]"),
            (bearing.embedder, list(lacking), [vectors[words] for words in lacking.values()]),
        )["found"]
        rest = dict(zip(lacking, found, strict=True))
    return {id_: (similarity + rest.get(id_, 1.0)) / 2 for id_, similarity in bearing.similarities.items()}


def asks_of_own_matters(db: Database, bearing: Bearing) -> bool:
    """Return whether a message asks for a fact that only the user and their memories can know."""
    if not _ASKS.search(bearing.question):
        return False
    return _margin(db, bearing) >= _LEAST[_kind(bearing)]


def _kind(bearing: Bearing) -> str:
    near = [id_ for id_, value in bearing.similarities.items() if value >= _NEAR and bearing.held[id_]]
    if any(map(bearing.names, near)):
        return "named"
    if _OWN.search(bearing.question):
        return "own"
    if near:
        return "same"
    return "near" if max(bearing.similarities.values(), default=0) >= _BEARS else "else"


def invents(reply: str, sources: Iterable[str]) -> bool:
    """Return whether a reply has a number or a name that none of its sources has."""
    known = {part.lower() for source in sources for part in _PART.findall(source)}
    claims = [*_NUMBER.findall(reply), *_NAME.findall(reply)]
    return any(part.lower() not in known for claim in claims for part in _PART.findall(claim))


def _margin(db: Database, bearing: Bearing) -> float:
    """Return by how much a message is closer to questions about one's own matters than to others."""
    own = [float(number) for number in bearing.vector.strip("[]").split(",")]
    key = bearing.embedder, len(own)
    if key not in _examples:
        _examples[key] = list(runtime.embed(db, bearing.embedder, [*_OWN_MATTERS, *_OTHER_MATTERS]))
    near = [sum(a * b for a, b in zip(own, one, strict=True)) for one in _examples[key]]
    kinds = near[: len(_OWN_MATTERS)], near[len(_OWN_MATTERS) :]
    first, second = (sum(sorted(kind)[-_CLOSEST:]) / _CLOSEST for kind in kinds)
    return first - second
