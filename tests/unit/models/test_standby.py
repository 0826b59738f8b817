"""A served model whose server ends: the embedded model takes its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mindful.core.errors import EngineError
from mindful.core.ports import Completion, Message, ModelSpec, Sampling
from mindful.core.slot import Turn
from mindful.models.providers import openai
from mindful.models.providers.openai import http
from mindful.models.standby import StandbyEmbedder, StandbyGenerator, whole
from support.dying import MOMENTS, SHOWN, dying
from unit.fakes import FakeDatabase

OPTIONS = {
    "generator": {"model": "m", "server": "llama.cpp", "context_length": 512, "silence_s": 2},
    "embedder": {"model": "m", "server": "llama.cpp", "context_length": 512, "silence_s": 2, "dims": 2},
}
TOKENS = [1, 2, 3]


class Embedded:
    """The model in this process, as both kinds."""

    served = False
    dims = 2
    context_length = 512
    state_format = "format"

    def __init__(self) -> None:
        self.tenants: list[str] = []
        self.slots: list[int] = []

    def serve(self, tenant: str) -> None:
        self.tenants.append(tenant)

    def count(self, text: str) -> int:
        return 7

    def encode(self, messages: Any) -> list[int]:
        return TOKENS

    def stream(self, tokens: Any, sampling: Any, completion: Completion, turn: Turn) -> Iterator[str]:
        self.slots.append(len(turn._slots))
        completion.logprobs.append(-0.5)
        yield "Paris"
        yield "."

    def stream_many(self, prompts: Any, samplings: Any, completions: Any, turn: Turn) -> list[str]:
        return [
            "".join(self.stream(*call, turn)) for call in zip(prompts, samplings, completions, strict=True)
        ]

    def score(self, prompts: Any, candidates: Any, end: str, turn: Turn) -> list[list[float]]:
        return [[-1.0] * len(candidates)] * len(prompts)

    def next_logprobs(self, tokens: Any, candidates: Any, turn: Turn) -> list[float]:
        return [-1.0] * len(candidates)

    def embed(self, texts: Any, turn: Turn) -> list[Any]:
        self.slots.append(len(turn._slots))
        return [(1.0, 0.0)] * len(texts)


CALLS: dict[str, Callable[[Any, Turn], object]] = {
    "count": lambda model, turn: model.count("a text"),
    "encode": lambda model, turn: model.encode([Message("user", "Hi")]),
    "whole": lambda model, turn: whole(model, TOKENS, Sampling(4), Completion(), turn),
    "stream_many": lambda model, turn: model.stream_many(
        [TOKENS] * 2, [Sampling(4)] * 2, [Completion(), Completion()], turn
    ),
    "score": lambda model, turn: model.score(["Text: a\nLabel:"], [" b", " c"], "\n", turn),
    "next_logprobs": lambda model, turn: model.next_logprobs(TOKENS, ["a", "b"], turn),
}
EXPECTED = {
    "count": 7,
    "encode": TOKENS,
    "whole": "Paris.",
    "stream_many": ["Paris."] * 2,
    "score": [[-1.0, -1.0]],
    "next_logprobs": [-1.0, -1.0],
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_BACK_OFF_S", (0.01, 0.02))
    http._health.clear()


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


def served(path: Path, kind: str) -> Any:
    return openai.load(ModelSpec("m", kind, "openai", f"unix:{path}", "", OPTIONS[kind]), FakeDatabase())


def generator(path: Path, embedded: Embedded) -> StandbyGenerator:
    model = StandbyGenerator(served(path, "generator"), lambda: embedded)  # type: ignore[arg-type, return-value]
    model.serve("ana")
    return model


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_the_server_ends_the_connection_runs_the_model(
    tmp_path: Path, embedded: Embedded, moment: str, call: str
) -> None:
    path = tmp_path / "s"
    with dying(path, moment):
        model = generator(path, embedded)
        with Turn(FakeDatabase(), served=model.served) as turn:
            assert CALLS[call](model, turn) == EXPECTED[call]
            assert len(turn._slots) == (call not in ("count", "encode"))
    assert embedded.tenants == ["ana"]
    assert not model.served


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_without_a_stand_in_the_error_says_that_the_server_is_down(
    tmp_path: Path, moment: str, call: str
) -> None:
    path, db = tmp_path / "s", FakeDatabase()
    with dying(path, moment):
        model = served(path, "generator")
        with pytest.raises(EngineError), Turn(db, served=True) as turn:
            CALLS[call](model, turn)
        model.close()


@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_the_server_ends_texts_are_embedded(tmp_path: Path, embedded: Embedded, moment: str) -> None:
    path = tmp_path / "s"
    with dying(path, moment):
        model = StandbyEmbedder(served(path, "embedder"), lambda: embedded)  # type: ignore[arg-type, return-value]
        with Turn(FakeDatabase(), served=model.served) as turn:
            assert model.embed(["a text"] * 40, turn) == [(1.0, 0.0)] * 40
    assert embedded.slots == [1]


@pytest.mark.parametrize("moment", [moment for moment in MOMENTS if moment != SHOWN])
def test_a_stream_begins_again_as_long_as_nothing_was_shown(
    tmp_path: Path, embedded: Embedded, moment: str
) -> None:
    path, completion = tmp_path / "s", Completion()
    with dying(path, moment):
        model = generator(path, embedded)
        turn = Turn(FakeDatabase(), served=model.served)
        pieces = model.stream(TOKENS, Sampling(4), completion, turn)
        for expected in ("Paris", "."):
            with turn:
                assert next(pieces) == expected
            assert turn._slots == []
    assert completion.logprobs == [-0.5]


def test_a_stream_fails_if_a_part_of_it_was_shown(tmp_path: Path, embedded: Embedded) -> None:
    path = tmp_path / "s"
    with dying(path, SHOWN):
        model = generator(path, embedded)
        with Turn(FakeDatabase(), served=True) as turn:
            pieces = model.stream(TOKENS, Sampling(4), Completion(), turn)
            assert next(pieces) == "H"
            with pytest.raises(EngineError, match="in the middle"):
                next(pieces)


def test_an_answer_that_was_shown_to_no_one_begins_again(tmp_path: Path, embedded: Embedded) -> None:
    path, completion = tmp_path / "s", Completion()
    with dying(path, SHOWN):
        model = generator(path, embedded)
        with Turn(FakeDatabase(), served=True) as turn:
            assert whole(model, TOKENS, Sampling(4), completion, turn) == "Paris."
    assert completion.logprobs == [-0.5]  # without those of the broken answer
