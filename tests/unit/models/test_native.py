"""Generators behind llama.cpp's own server: prompts are tokens, and what is another tenant's is not told of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.core.errors import ContextLengthError, EngineAnswerError, InvalidParameterError
from mindful.core.ports import Completion, Message, Sampling
from mindful.models.providers.openai.native import LlamaServerGenerator
from unit.fakes import FakeDatabase

SPECIAL = {"<s>": 1, "<user>": 2, "<system>": 3, "<assistant>": 4, "<end>": 5}
HOST = FakeDatabase()


def plain(text: str) -> list[int]:
    """A character is a token."""
    return [100 + ord(one) for one in text]


def tokens_of(text: str) -> list[int]:
    """The tokens of a text that a template made."""
    if not text:
        return []
    found = next((mark for mark in SPECIAL if text.startswith(mark)), None)
    return (
        [SPECIAL[found], *tokens_of(text.removeprefix(found))]
        if found
        else [*plain(text[0]), *tokens_of(text[1:])]
    )


class Api:
    """A server whose model says a text, each character with a probability of a half."""

    address = SimpleNamespace(root="", path="/v1", origin="http://localhost")

    def __init__(
        self, text: str = "Paris", *, bos: str = "<s>", refused: Sequence[str] = (), end: str = "eos"
    ) -> None:
        self.text, self.bos, self.refused, self.end = text, bos, refused, end
        self.cached = 0
        self.took = 0.0
        self.bodies: list[Mapping[str, Any]] = []
        self.rendered = 0
        self.likely: dict[int, float] = {}
        self.unlikely: dict[int, float] = {}
        self.parts: Sequence[int] = ()
        """Tokens that are parts of characters."""

    def post(
        self, path: str, body: Mapping[str, Any], _interrupts: object, *, patient: bool = False
    ) -> Mapping[str, Any]:
        if path == "/tokenize":
            tokens = tokens_of(body["content"]) if body["parse_special"] else plain(body["content"])
            return {"tokens": [1, *tokens] if body["add_special"] else tokens}
        if path == "/detokenize":
            return {"content": "".join(chr(token - 100) for token in body["tokens"])}
        self.bodies.append(body)
        if patient:
            assert body["stream"] is False
            *events, end = self.said(body)
            return end | {"completion_probabilities": [one["completion_probabilities"][0] for one in events]}
        [[token, _]] = body["logit_bias"]
        if token in self.parts:
            return {}
        listed = self.likely | (self.unlikely if body["n_probs"] > 1000 else {})
        rows = [{"id": one, "logprob": value} for one, value in listed.items()][: body["n_probs"]]
        chosen = (self.likely | self.unlikely)[token]
        return {"completion_probabilities": [{"id": token, "logprob": chosen, "top_logprobs": rows}]}

    def get(self, _path: str, _host: object) -> Mapping[str, Any]:
        return {"bos_token": "<s>"}

    def ask(self, _path: str, body: Mapping[str, Any], *_: object) -> Mapping[str, Any] | None:
        self.rendered += 1
        if any(one["role"] in self.refused for one in body["messages"]):
            return None
        parts = (f"<{one['role']}>{one['content']}<end>" for one in body["messages"])
        return {"prompt": f"{self.bos}{''.join(parts)}<assistant>"}

    def events(self, _path: str, body: Mapping[str, Any], _interrupts: object) -> Iterator[Mapping[str, Any]]:
        self.bodies.append(body)
        assert body["stream"] is True
        yield from self.said(body)

    def said(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        made = self.text[: body["n_predict"]]
        for one in made:
            top = [
                {"bytes": list(b"?"), "logprob": math.log(0.5)},
                {"bytes": list(b"!"), "logprob": math.log(0.25)},
            ]
            token = {
                "bytes": list(one.encode()),
                "logprob": math.log(0.5),
                "top_logprobs": top[: body["n_probs"]],
            }
            yield {"completion_probabilities": [token]}
        end = self.end if made == self.text else "limit"
        yield {"stop": True, "stop_type": end, "timings": {"cache_n": self.cached, "predicted_ms": self.took}}


def generator(api: Api, context_length: int = 100, **options: Any) -> LlamaServerGenerator:
    given = {"model": "m", "server": "llama.cpp"} | options
    return LlamaServerGenerator(cast(Any, api), HOST, context_length, 1, 2, given)


def said(
    model: LlamaServerGenerator, prompt: Sequence[int] = (1, 2, 3), **sampling: Any
) -> tuple[str, Completion]:
    completion = Completion()
    text = "".join(model.stream(prompt, Sampling(**{"max_tokens": 16} | sampling), completion, HOST))
    return text, completion


ASK = [Message("system", "Be brief."), Message("user", "Hi")]


@pytest.mark.parametrize("bos", ["<s>", ""])
def test_a_prompt_is_what_the_template_makes_and_begins_once(bos: str) -> None:
    expected = tokens_of("<s><system>Be brief.<end><user>Hi<end><assistant>")
    assert generator(Api(bos=bos)).encode(ASK) == expected


def test_a_users_control_token_is_text() -> None:
    expected = [*tokens_of("<s><user>"), *plain("<end><s>"), *tokens_of("<end><assistant>")]
    assert generator(Api()).encode([Message("user", "<end><s>")]) == expected


def test_a_template_is_asked_once_for_conversations_of_one_form() -> None:
    api = Api()
    model = generator(api)
    assert model.encode(ASK) != model.encode([ASK[0], Message("user", "Bye")])
    assert api.rendered == 1
    model.encode(ASK[1:])
    assert api.rendered == 2


def test_where_a_template_has_no_system_the_user_says_it() -> None:
    api = Api(refused=["system"])
    assert generator(api).encode(ASK) == tokens_of("<s><user>Be brief.\n\nHi<end><assistant>")
    with pytest.raises(InvalidParameterError) as raised:
        generator(Api(refused=["system", "user"])).encode(ASK)
    assert raised.value.hint == "The roles were: system, user."


def test_texts_are_counted_and_cut_by_the_servers_tokens() -> None:
    model = generator(Api())
    assert (model.count("Paris"), model.count("")) == (5, 0)
    assert (model.truncate("Paris", 3), model.truncate("Paris", 9)) == ("Par", "Paris")
    assert model.tokenize("a") == plain("a")
    assert model.tokenize("a", opens=True) == [1, *plain("a")]


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize(
    ("api", "sampling", "text", "reason"),
    [
        (Api(), {}, "Paris", "stop"),
        (Api(), {"max_tokens": 5}, "Paris", "stop"),
        (Api(), {"max_tokens": 3}, "Par", "length"),
        (Api(end="limit"), {}, "Paris", "length"),
        (Api(), {"stop": ("ri",)}, "Pa", "stop"),
    ],
)
def test_an_answer_tells_its_signals_and_why_it_ended(
    api: Api, sampling: dict[str, Any], text: str, reason: str, shown: bool
) -> None:
    answer, done = said(generator(api), shown=shown, **sampling)
    assert (answer, done.finish_reason, done.prompt_tokens) == (text, reason, 3)
    assert done.logprobs == pytest.approx([math.log(0.5)] * len(done.logprobs))
    assert len(done.logprobs) == (4 if "stop" in sampling else len(text))
    # A half, a quarter, and a quarter for all others.
    assert done.entropies[0] == pytest.approx(-(0.5 * math.log(0.5) + 0.5 * math.log(0.25)))
    assert done.margins[0] == pytest.approx(0.25)
    assert 0 < (done.first_token_ms or 0) <= (done.total_ms or 0)


@pytest.mark.parametrize("shown", [True, False])
def test_a_models_own_stops_end_its_answers(shown: bool) -> None:
    assert said(generator(Api(), stop=["i"]), shown=shown)[0] == "Par"


@pytest.mark.parametrize(
    ("options", "sampling", "streams"),
    [
        ({}, {"max_tokens": 128}, False),
        ({}, {"max_tokens": 129}, True),
        ({}, {"stop": ("i",)}, True),
        ({"stop": ["i"]}, {}, True),
        ({"grammars": True}, {"grammar": 'root ::= "Paris"'}, False),
        ({"llguidance": True}, {"grammar": 'root ::= "Paris"'}, True),
    ],
)
def test_a_short_answer_that_is_not_shown_is_asked_for_as_a_whole(
    options: dict[str, Any], sampling: dict[str, Any], streams: bool
) -> None:
    api = Api()
    assert said(generator(api, 200, **options), shown=False, **sampling)[0] in ("Paris", "Par")
    assert api.bodies[-1]["stream"] is streams
    assert said(generator(api, 200, **options), **sampling)[0] in ("Paris", "Par")
    assert api.bodies[-1]["stream"] is True


def test_the_server_tells_when_a_whole_answer_had_its_first_token() -> None:
    api = Api()
    api.took = 1e9
    assert said(generator(api), shown=False)[1].first_token_ms == 0
    api.took = 1e-9
    done = said(generator(api), shown=False)[1]
    assert done.first_token_ms == pytest.approx(done.total_ms, abs=5)


def test_the_tokens_of_a_whole_answer_are_counted_as_they_are_read() -> None:
    done = Completion()
    pieces = generator(Api()).stream([1, 2, 3], Sampling(16, shown=False), done, HOST)
    assert [(piece, len(done.logprobs)) for piece in pieces] == [
        (one, at) for at, one in enumerate("Paris", 1)
    ]


def test_no_more_is_asked_for_than_the_context_holds() -> None:
    api = Api("a" * 50)
    assert len(said(generator(api, 12), max_tokens=50)[0]) == 9
    assert api.bodies[-1]["n_predict"] == 9


@pytest.mark.parametrize(
    ("options", "seed", "cached"), [({}, None, True), ({}, 7, False), ({"prompt_cache": False}, None, False)]
)
def test_an_answer_with_a_seed_uses_no_cache(options: dict[str, Any], seed: int | None, cached: bool) -> None:
    api = Api()
    said(generator(api, **options), seed=seed)
    assert api.bodies[-1]["cache_prompt"] is cached
    assert api.bodies[-1].get("seed") == seed


@pytest.mark.parametrize(("alternatives", "asked"), [(None, 2), (0, 2), (1, 2), (5, 5)])
def test_as_many_alternatives_are_told_as_wanted(alternatives: int | None, asked: int) -> None:
    api = Api()
    _, done = said(generator(api), alternatives=alternatives)
    assert api.bodies[-1]["n_probs"] == asked
    if alternatives is None:
        assert done.pieces == []
    else:
        assert b"".join(piece.data for piece in done.pieces) == b"Paris"
        assert {len(piece.alternatives) for piece in done.pieces} == {min(alternatives, 2)}


def test_only_ones_own_cached_tokens_are_told_of() -> None:
    api = Api()
    api.cached = 4
    model = generator(api)
    prompts = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7], [1, 2, 9])
    model.serve("ana")
    assert [said(model, prompt)[1].cached_tokens for prompt in prompts] == [0, 4, 2]
    model.serve("ana")
    assert said(model, [1, 2, 9])[1].cached_tokens == 3
    model.serve("bob")
    assert said(model, [1, 2, 9])[1].cached_tokens == 0
    done = [Completion(), Completion()]
    assert model.stream_many([[1, 2, 9]] * 2, [Sampling(16)] * 2, done, cast(Any, HOST)) == ["Paris"] * 2
    assert [one.cached_tokens for one in done] == [0, 0]


def test_a_candidate_that_is_not_likely_is_asked_for_alone() -> None:
    api, [a, b, c] = Api(), plain("abc")
    api.likely, api.unlikely = {a: -0.5, b: -1.0}, {c: -9.0}
    assert generator(api).next_logprobs([1], ["a", "b", "ax"], HOST) == [-0.5, -1.0, -0.5]
    assert len(api.bodies) == 1
    assert generator(api).next_logprobs([1], ["c", "a"], HOST) == [-9.0, -0.5]
    many = generator(api).next_logprobs_many([[1], [2]], ["b", "c"], cast(Any, HOST))
    assert many == [[-1.0, -9.0]] * 2


def test_a_candidate_that_begins_with_a_part_of_a_character_is_found_among_all_tokens() -> None:
    """As an emoji, or many a Chinese character: the server tells nothing of such a token that is chosen."""
    api, [a, b, c, space] = Api(), plain("abc ")
    api.likely, api.unlikely, api.parts = {a: -0.5, space: -1.0}, {b: -8.0, c: -9.0}, [b, c]
    assert generator(api).next_logprobs([1], ["c", "a", "b"], HOST) == [-9.0, -0.5, -8.0]
    assert len(api.bodies) == 3
    api.unlikely = {b: -8.0}
    with pytest.raises(EngineAnswerError, match=f"log-probability of token {c}"):
        generator(api).next_logprobs([1], ["c"], HOST)


def test_a_label_scores_the_mean_of_its_tokens() -> None:
    api = Api()
    api.likely = dict(zip(plain("abcd."), (-1.0, -2.0, -3.0, -4.0, -5.0), strict=True))
    model = generator(api)
    prompts = ["Is it:", "Was it:"]
    assert model.score(prompts, ["ab", "cd"], ".", cast(Any, HOST)) == [[-1.5, -3.5]] * 2
    assert model.score(prompts, ["a", "cd"], ".", cast(Any, HOST)) == [[-3.0, -4.0]] * 2


def test_labels_share_what_they_begin_with() -> None:
    api = Api()
    api.likely = dict.fromkeys(plain("abcd"), -1.0)
    generator(api).score(["p"], ["abc", "abd", "acd"], ".", cast(Any, HOST))
    prompts = {tuple(body["prompt"]) for body in api.bodies}
    assert prompts == {(1, *plain(text)) for text in ("p", "pa", "pab", "pac")}


@pytest.mark.parametrize(("length", "fits"), [(9, True), (8, False)])
def test_a_label_has_room_in_the_context(length: int, fits: bool) -> None:
    api = Api()
    api.likely = dict.fromkeys(plain("abc"), -1.0)
    model = generator(api, length)
    if fits:
        assert model.score(["a" * 6], ["bc"], ".", cast(Any, HOST)) == [[-1.0]]
    else:
        with pytest.raises(ContextLengthError, match="9 tokens"):
            model.score(["a" * 6], ["bc"], ".", cast(Any, HOST))


def test_what_was_counted_is_remembered_for_one_tenant() -> None:
    api = Api()
    model, asked = generator(api), itertools.count()
    post = api.post
    api.post = lambda *given: (next(asked), post(*given))[1]  # type: ignore[method-assign]
    model.serve("ana")
    assert [model.count("Paris") for _ in range(3)] == [5] * 3
    assert next(asked) == 1
    model.serve("bob")
    model.count("Paris")
    assert next(asked) == 3


@pytest.mark.parametrize(
    "probabilities",
    [3, [{"logprob": -1.0, "top_logprobs": []}], [{"bytes": [97], "logprob": 0.5, "top_logprobs": []}]],
)
def test_an_answer_without_its_signals_is_refused(probabilities: Any) -> None:
    def events(*_: object) -> Iterator[Mapping[str, Any]]:
        yield {"completion_probabilities": probabilities}

    api = Api()
    api.events = events  # type: ignore[method-assign, assignment]
    with pytest.raises(EngineAnswerError):
        said(generator(api))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"stop": True},
        {"stop": True, "completion_probabilities": 3},
        {"stop": True, "completion_probabilities": [3]},
        {"stop": True, "completion_probabilities": [{"bytes": [97], "logprob": 0.5, "top_logprobs": []}]},
        {"completion_probabilities": []},
    ],
)
def test_a_whole_answer_without_its_signals_is_refused(answer: Any) -> None:
    api = Api()
    api.post = lambda *_, **__: answer  # type: ignore[method-assign]
    with pytest.raises(EngineAnswerError):
        said(generator(api), shown=False)


def test_what_the_server_tells_of_its_times_may_be_missing() -> None:
    api = Api()
    for timings in ({}, {"timings": 3}, {"timings": {"cache_n": "a", "predicted_ms": None}}):
        api.post = lambda *_, more=timings, **__: {"stop": True, "completion_probabilities": []} | more  # type: ignore[method-assign]
        assert said(generator(api), shown=False)[1].cached_tokens == 0
