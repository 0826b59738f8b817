"""Classifiers from a tenant's labeled rows: what is trained on, kept, and answered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from mindful.core.errors import InvalidParameterError, MindfulError, NotReadyError, NullValueError
from mindful.core.ports import Row
from mindful.generate import classifier
from mindful.generate.classifier import classifier_train, trained_classifier
from unit.fakes import FakeDatabase, scripted, wrapped

THINGS = {
    "animal": ["dog", "cat", "horse", "cow", "sheep"],
    "food": ["bread", "cheese", "rice", "soup", "jam"],
}
ROWS = [{"content": f"{label} {word}", "label": label} for label, words in THINGS.items() for word in words]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    classifier._loaded.clear()
    yield
    classifier._loaded.clear()


def digest(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


class Trained(FakeDatabase):
    """Gives labeled rows, and keeps what is trained."""

    def __init__(self, rows: Sequence[Row] = ROWS, kept: Sequence[Row] = ()) -> None:
        self.kept: dict[str, Any] = {}
        self.examples: list[Row] = []
        self.fitted = 0
        super().__init__(
            scripted({"dims": 64})
            | {
                "_mindful.short_argument": [],
                "select r.content, r.label": rows,
                "_mindful.embeddings_kept": kept,
                "_mindful.classifier_write": self._write,
                "_mindful.classifier_find": lambda name: [self.kept] if self.kept else [],
                "_mindful.classifier_examples": self._examples,
            }
        )

    def train(self) -> dict[str, Any]:
        row: dict[str, Any] = wrapped(classifier_train)(self, "things", "select content, label from t;", None)
        return row

    def found(self, texts: Sequence[str], labels: Sequence[str] = ("animal", "food")) -> list[list[float]]:
        trained = trained_classifier(self, "things")
        return trained.probabilities(self, texts, trained.chosen(labels))

    def _write(self, name: str, embedder: str, sha256: str, _: list[str], *rest: Any) -> Sequence[Row]:
        method, strength, *_, labels, hashes, matrix, dims = rest
        vectors = np.frombuffer(matrix, np.float32).reshape(-1, dims)
        self.examples = [
            {"label": label, "embedding": vector.tobytes(), "hash": one}
            for label, vector, one in zip(labels, vectors, hashes, strict=True)
        ]
        self.kept = {
            "tenant": "ana",
            "version": self.kept.get("version", 0) + 1,
            "embedder": embedder,
            "embedder_sha256": sha256,
            "method": method,
            "strength": strength,
            "examples": len(labels),
        }
        return []

    def _examples(self, _name: str) -> Sequence[Row]:
        self.fitted += 1
        return self.examples


def test_a_trained_classifier_tells_its_labels_apart() -> None:
    db = Trained()
    row = db.train()
    assert (row["name"], row["embedder"], row["labels"]) == ("things", "embedder", ["animal", "food"])
    assert (row["examples"], row["accuracy_largest"]) == (10, 0.5)
    assert row["accuracy"] == max(row["accuracy_neighbors"], row["accuracy_logistic"]) == 1
    assert [one["hash"] for one in db.examples] == [digest(one["content"]) for one in ROWS]
    assert [one["label"] for one in db.examples] == [one["label"] for one in ROWS]
    (animal, food) = db.found(["animal fox", "food cake"])
    assert animal[0] > 0.5 > animal[1]
    assert food[1] > 0.5 > food[0]
    assert db.found(["food cake"], ["food", "animal"]) == [pytest.approx([food[1], food[0]])]


def test_probabilities_of_the_wished_labels_sum_to_1() -> None:
    db = Trained(
        [*ROWS, {"content": "place Rome", "label": "place"}, {"content": "place Oslo", "label": "place"}]
    )
    db.train()
    for labels in (["animal", "food", "place"], ["animal", "place"], ["food"]):
        assert [sum(row) for row in db.found(["animal fox", "place Bonn"], labels)] == pytest.approx([1, 1])
    assert db.found(["place Bonn"], ["animal", "place"])[0][1] > 0.5


def test_a_label_that_the_classifier_has_not_is_refused() -> None:
    db = Trained()
    db.train()
    with pytest.raises(InvalidParameterError, match='no label "tool"') as raised:
        db.found(["a"], ["food", "tool"])
    assert raised.value.hint == "It has animal, food."


def test_embeddings_of_memories_are_read_and_others_computed() -> None:
    far = "[" + ",".join(["-0.125"] * 64) + "]"
    db = Trained(kept=[{"content_hash": digest(ROWS[3]["content"]), "embedding": far}])
    db.train()
    vectors = [np.frombuffer(one["embedding"], np.float32) for one in db.examples]
    assert vectors[3] == pytest.approx([-0.125] * 64)
    plain = Trained()
    plain.train()
    for at, one in enumerate(plain.examples):
        assert (one["embedding"] == db.examples[at]["embedding"]) == (at != 3)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (ROWS[:9], "9 labeled rows"),
        ([*ROWS[:9], {"content": " \n", "label": "food"}], "9 labeled rows"),
        (ROWS[:5] * 2, "1 different labels"),
        ([*ROWS, {"content": "a", "label": " "}], "3 different labels"),
        ([{"content": "a", "label": str(at)} for at in range(256)], "256 different labels"),
        (ROWS * 1001, "10010 labeled rows"),
        ([*ROWS, {"content": "a" * 300_000, "label": "food"}], "content has 300000 bytes"),
        ([*ROWS, {"content": "a", "label": "a" * 300_000}], "label has 300000 bytes"),
    ],
)
def test_rows_that_nothing_can_be_learned_from_are_refused(rows: list[Row], wrong: str) -> None:
    with pytest.raises(MindfulError, match=wrong):
        Trained(rows).train()


def test_the_fewest_rows_and_the_most_labels_are_learned_from() -> None:
    assert Trained(ROWS[:2] + ROWS[5:] + ROWS[5:8]).train()["accuracy_largest"] == 0.8
    many = [{"content": f"word{at}", "label": str(at)} for at in range(255)]
    assert len(classifier._labeled(Trained(many), "select content, label from t")[1]) == 255


def test_as_many_texts_of_six_kilobytes_fit_as_rows_may_be_trained_on() -> None:
    db = Trained()
    db.train()
    [(sql, _)] = [asked for asked in db.asked if "select r.content, r.label" in asked[0]]
    bytes_, rows = re.search(r"r\.bytes <= (\d+)", sql), re.search(r"limit (\d+)", sql)
    assert bytes_ is not None
    assert rows is not None
    assert int(bytes_[1]) >= 10_000 * 6 * 1024
    assert int(rows[1]) == 10_001  # one more tells that there are too many


def test_labels_differ_by_their_words_alone() -> None:
    spaced = [row | {"label": f" {row['label']}\n  thing"} for row in ROWS]
    assert Trained(spaced).train()["labels"] == ["animal thing", "food thing"]


@pytest.mark.parametrize("given", [(None, "select 1"), ("things", None)])
def test_a_name_and_a_query_are_needed(given: tuple[str | None, str | None]) -> None:
    with pytest.raises(NullValueError):
        wrapped(classifier_train)(Trained(), *given, None)


def test_a_classifier_is_fitted_once_until_it_is_trained_again() -> None:
    db = Trained()
    db.train()
    for _ in range(3):
        db.found(["animal fox"])
    assert db.fitted == 1
    db.train()
    db.found(["animal fox"])
    assert db.fitted == 2
    db.kept["examples"] -= 1  # one was forgotten
    db.found(["animal fox"])
    assert db.fitted == 3


def test_the_four_classifiers_that_were_used_last_are_held() -> None:
    db = Trained()
    db.train()
    for name in "abcd":
        trained_classifier(db, name)
    trained_classifier(db, "a")
    assert db.fitted == 4
    trained_classifier(db, "e")
    assert db.fitted == 5
    for name in "acde":
        trained_classifier(db, name)
    assert db.fitted == 5
    trained_classifier(db, "b")
    assert db.fitted == 6


def test_a_classifier_whose_embedder_changed_is_trained_again() -> None:
    db = Trained()
    db.train()
    db.kept["embedder_sha256"] = "beef"
    with pytest.raises(NotReadyError, match="embedder"):
        db.found(["animal fox"])


def test_one_label_alone_is_not_told_apart() -> None:
    db = Trained()
    db.train()
    db.examples = [one for one in db.examples if one["label"] == "food"]
    with pytest.raises(NotReadyError, match="fewer than two labels"):
        db.found(["animal fox"])


def test_a_classifier_that_does_not_exist_is_named() -> None:
    with pytest.raises(MindfulError, match='no classifier "things"'):
        trained_classifier(Trained(), "things")
