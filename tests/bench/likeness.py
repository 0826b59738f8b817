"""Compare synthetic embeddings with real ones: how near neighbors are at each size, for `make bench-scale`.

Real ones are by the server's default embedder: LoCoMo's turns and questions, and the sentences of the docstrings of
Python's library, which every server has.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import locomo
import numpy as np
import psycopg
from numpy.typing import NDArray
from synthetic import NestedCorpus

Vectors = NDArray[np.float32]
_NEIGHBORS = 20
_SIZES = (500, 2_000, 8_000, 32_000, 128_000)
_ASKED = 300


def table(dsn: str, path: Path) -> list[str]:
    """Write the figures of real and synthetic embeddings as a table."""
    rng = np.random.default_rng(11)
    with psycopg.connect(dsn, autocommit=True) as db:
        said, asked = (rng.permutation(_embedded(db, texts)) for texts in _conversations(path))
        written = rng.permutation(_embedded(db, sorted({*_sentences()})))
    corpus = NestedCorpus(said.shape[1])
    made = corpus.vectors(_SIZES[-1])
    lines = [
        "| embeddings | number | nearest, cosine | 10th, cosine | local intrinsic dimension |",
        "|---|---|---|---|---|",
    ]
    for name, vectors, questions in (
        ("LoCoMo's turns", said, said),
        ("Python's docstrings", written, written),
        ("synthetic", made, made),
        ("LoCoMo's questions to its turns", said, asked),
        ("synthetic questions", made, corpus.around(made[:_ASKED])),
    ):
        lines += [
            f"| {name} | {size:,} | {_row(vectors[:size], questions[:_ASKED], own=vectors is questions)} |"
            for size in _SIZES
            if size <= len(vectors)
        ]
    return lines


def _row(vectors: Vectors, asked: Vectors, *, own: bool) -> str:
    """Return medians over what is asked. The dimension is that of Levina and Bickel (2004) with 20 neighbors."""
    count = _NEIGHBORS + own
    near = -np.sort(np.partition(-(asked @ vectors.T), count, axis=1)[:, :count], axis=1)[:, int(own) :]
    distances = np.sqrt(np.maximum(2 - 2 * near, 1e-9))
    dimension = 1 / np.log(distances[:, -1:] / distances[:, :-1]).mean(axis=1)
    return f"{np.median(near[:, 0]):.2f} | {np.median(near[:, 9]):.2f} | {np.median(dimension):.1f}"


def _embedded(db: psycopg.Connection, texts: Sequence[str]) -> Vectors:
    """Embed texts, and leave out those with the embedding of another."""
    rows: list[list[float]] = []
    for first in range(0, len(texts), 500):
        found = db.execute(
            "select v::real[] from unnest(mindful.llm_embed_many(%s)) v", (list(texts[first : first + 500]),)
        )
        rows += [vector for (vector,) in found.fetchall()]
    return np.unique(np.array(rows, dtype=np.float32).round(5), axis=0)


def _conversations(path: Path) -> tuple[list[str], list[str]]:
    read = locomo.read(path)
    turns = [turn["content"] for one in read for turns in one.sessions.values() for turn in turns]
    return turns, [question.text for one in read for question in one.questions]


def _sentences() -> Iterator[str]:
    """Yield sentences of 5 words and more."""
    for path in Path(sysconfig.get_path("stdlib")).rglob("*.py"):
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except (SyntaxError, ValueError):  # some are tests of the parser
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for text in re.split(r"\n\s*\n|(?<=[.!?])\s+(?=[A-Z])", ast.get_docstring(node) or ""):
                    sentence = " ".join(text.split())
                    if 30 < len(sentence) < 400 and sentence.count(" ") >= 4:
                        yield sentence
