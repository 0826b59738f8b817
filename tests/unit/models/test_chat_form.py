"""Generators of which no more is known than OpenAI's form: the server renders and counts, or tokens are estimated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.core.errors import EngineAnswerError, MissingPackageError
from mindful.core.ports import Completion, Message, Penalties, Sampling
from mindful.models.providers.openai.chat import ChatGenerator
from unit.fakes import FakeDatabase

HOST = FakeDatabase()
HALF, QUARTER = math.log(0.5), math.log(0.25)
ASK = [Message("system", "Be brief."), Message("user", "Hi"), Message("user", "there")]


class Api:
    """A server whose model says a text, each word with a probability of a half."""

    address = SimpleNamespace(root="", path="/v1", origin="http://localhost")

    def __init__(self, *words: str, end: str = "stop", top: Mapping[str, float] | None = None) -> None:
        self.words, self.end = words, end
        self.top = top or {"Yes": HALF, "No": QUARTER}
        self.bodies: list[Mapping[str, Any]] = []
        self.paths: list[str] = []

    def post(
        self, path: str, body: Mapping[str, Any], _interrupts: object, *, patient: bool = False
    ) -> Mapping[str, Any]:
        self.paths.append(path)
        self.bodies.append(body)
        if path.startswith(("/tokenize", "/extras")):
            return {"count": len(body.get("prompt", body.get("input")))}
        if body.get("echo"):  # a character is a token, less probable the later it stands in its text
            text = body["prompt"]
            return {
                "choices": [
                    {
                        "logprobs": {
                            "text_offset": list(range(len(text) + 1)),
                            "token_logprobs": [None, *(-float(at) for at in range(1, len(text) + 1))],
                        }
                    }
                ]
            }
        if patient:
            assert body["stream"] is False
            assert "stream_options" not in body
            return {
                "choices": [
                    {
                        "message": {"content": "".join(self.words)},
                        "logprobs": {"content": [self.row(word) for word in self.words]},
                        "finish_reason": self.end,
                    }
                ],
                "usage": {"prompt_tokens": 11},
            }
        rows = [{"token": text, "logprob": value} for text, value in self.top.items()]
        return {"choices": [{"logprobs": {"content": [{"top_logprobs": rows}]}}]}

    def events(self, path: str, body: Mapping[str, Any], _interrupts: object) -> Iterator[Mapping[str, Any]]:
        self.paths.append(path)
        self.bodies.append(body)
        for word in self.words:
            yield {"choices": [{"delta": {"content": word}, "logprobs": {"content": [self.row(word)]}}]}
        yield {"choices": [{"delta": {}, "finish_reason": self.end}]}
        yield {"choices": [], "usage": {"prompt_tokens": 11}}

    def row(self, word: str) -> dict[str, Any]:
        top = [{"token": word, "logprob": HALF}, {"token": "?", "bytes": [63], "logprob": QUARTER}]
        return {"token": word, "logprob": HALF, "top_logprobs": top}


def generator(api: Api, server: str = "openai", **options: Any) -> ChatGenerator:
    given = {"model": "m", "server": server} | options
    return ChatGenerator(cast(Any, api), HOST, 100, 1, 10, given)


def said(model: ChatGenerator, **sampling: Any) -> tuple[str, Completion]:
    done = Completion()
    drawn = Sampling(**{"max_tokens": 16} | sampling)
    return "".join(model.stream(model.encode(ASK), drawn, done, HOST)), done


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize(
    ("end", "reason"), [("stop", "stop"), ("length", "length"), ("content_filter", "stop")]
)
def test_an_answer_tells_its_signals_and_why_it_ended(end: str, reason: str, shown: bool) -> None:
    text, done = said(generator(Api("It", " is", " so.", end=end)), shown=shown)
    assert (text, done.finish_reason, done.prompt_tokens) == ("It is so.", reason, 11)
    assert done.logprobs == [HALF] * 3
    assert done.entropies[0] == pytest.approx(-(0.5 * HALF + 0.5 * QUARTER))
    assert done.margins == pytest.approx([0.25] * 3)


@pytest.mark.parametrize(
    ("content", "tokens", "pieces"),
    [
        ("It is.", ["It", " is", ".", "<end>"], ["It", " is", "."]),
        ("It is.", [" It", " is", "."], ["It is."]),
        ("It is so.", ["It", " is"], ["It", " is so."]),
        ("", ["<think>"], []),
        ("caf\u00e9s", ["caf", b"\xc3", b"\xa9", "s"], ["caf", "\u00e9", "s"]),
    ],
)
def test_a_whole_answer_is_divided_among_its_tokens(
    content: str, tokens: list[Any], pieces: list[str]
) -> None:
    api = Api()
    rows = [
        api.row(token) if isinstance(token, str) else api.row("?") | {"bytes": list(token)}
        for token in tokens
    ]
    choice = {"message": {"content": content}, "logprobs": {"content": rows}, "finish_reason": "stop"}
    api.post = lambda *_, **__: {"choices": [choice]}  # type: ignore[method-assign]
    model, done = generator(api), Completion()
    assert list(model.stream(model.encode(ASK), Sampling(16, shown=False), done, HOST)) == pieces
    assert len(done.logprobs) == len(tokens)
    assert done.first_token_ms is None


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{"message": {"content": "a"}}]},
        {"choices": [{"message": {"content": "a"}, "logprobs": None}]},
        {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{}]}}]},
        {"choices": [{"message": "a"}]},
    ],
)
def test_a_whole_answer_without_its_signals_is_refused(answer: Any) -> None:
    api = Api()
    api.post = lambda *_, **__: answer  # type: ignore[method-assign]
    with pytest.raises(EngineAnswerError):
        said(generator(api), shown=False)


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("alternatives", [None, 0, 1, 2])
def test_tokens_are_told_as_bytes_with_their_alternatives(alternatives: int | None, shown: bool) -> None:
    _, done = said(generator(Api("caf\u00e9", " noir")), alternatives=alternatives, shown=shown)
    if alternatives is None:
        assert done.pieces == []
        return
    assert [piece.data for piece in done.pieces] == ["caf\u00e9".encode(), b" noir"]
    likeliest = [(b" noir", HALF), (b"?", QUARTER)]
    assert list(done.pieces[1].alternatives) == likeliest[:alternatives]


def test_a_request_says_how_to_draw() -> None:
    api = Api("Hi")
    said(generator(api), temperature=0.5, top_p=0.9, max_tokens=7)
    body = api.bodies[-1]
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi\n\nthere"},
    ]
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["top_logprobs"]) == (0.5, 0.9, 7, 10)
    assert not {"seed", "presence_penalty", "frequency_penalty", "logit_bias", "top_k"} & body.keys()
    said(generator(api), seed=3, penalties=Penalties(0.5, 0.0, 1.0), biases=((42, -1.0),))
    body = api.bodies[-1]
    assert (body["seed"], body["logit_bias"]) == (3, {"42": -1.0})
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.5, 0.0)
    said(generator(api), penalties=Penalties(0.0, 0.5, 1.0))
    assert api.bodies[-1]["frequency_penalty"] == 0.5
    said(generator(api, "llama-cpp-python"), top_k=5, min_p=0.2)
    body = api.bodies[-1]
    assert (body["top_k"], body["min_p"], body["repeat_penalty"]) == (5, 0.2, 1.0)
    assert "stream_options" not in body


@pytest.mark.parametrize(
    ("server", "text", "count", "path"),
    [
        ("openai", "", 0, None),
        ("openai", "abc", 1, None),
        ("openai", "abcd", 2, None),
        ("openai", "\u00e9\u00e9", 2, None),
        ("vllm", "abcd", 4, "/tokenize"),
        ("llama-cpp-python", "abcd", 4, "/extras/tokenize/count"),
    ],
)
def test_tokens_are_counted_by_the_server_or_estimated_by_bytes(
    server: str, text: str, count: int, path: str | None
) -> None:
    api = Api()
    model = generator(api, server)
    assert model.count(text) == model.count(text) == count
    assert api.paths == ([path] if path else [])


@pytest.mark.parametrize("tokens", range(8))
def test_a_text_is_cut_to_what_fits(tokens: int) -> None:
    kept = generator(Api()).truncate("a" * 20, tokens)
    assert min(2 * tokens, 20) <= len(kept) <= min(3 * tokens, 20)  # three bytes are a token


def test_a_prompt_is_as_long_as_its_messages_with_their_marks() -> None:
    prompt = generator(Api(), "vllm").encode(ASK)
    assert len(prompt) == len("Be brief.") + 8 + len("Hi\n\nthere") + 8
    assert len(prompt[:5]) == 5
    assert repr(prompt) == repr((ASK[0], Message("user", "Hi\n\nthere")))
    with pytest.raises(MissingPackageError):
        generator(Api()).tokenize("Once upon")


def test_labels_are_scored_by_what_the_server_repeats() -> None:
    model = generator(Api(), labels="echo")
    # Characters 4 and 5, and 4 and 5 and 6 with the end where the labels differ in length.
    assert model.score(["Is: "], ["ab", "cd"], "\n", cast(Any, HOST)) == [[-4.5, -4.5]]
    assert model.score(["Is: "], ["a", "cd"], "\n", cast(Any, HOST)) == [[-4.5, -5.0]]
    assert model.score(["Is: ", "Was: "], ["a", "b"], "\n", cast(Any, HOST)) == [[-4.0] * 2, [-5.0] * 2]


def test_a_prompt_to_repeat_begins_as_the_server_needs_it() -> None:
    api = Api()
    generator(api, labels="echo", echo_prefix="<s>").score(["Is: "], ["ab", "cd"], "\n", cast(Any, HOST))
    assert {body["prompt"] for body in api.bodies} == {"<s>Is: ab", "<s>Is: cd"}


def test_a_text_is_not_scored_by_its_first_token() -> None:
    with pytest.raises(MissingPackageError, match="how likely a text is"):
        generator(Api()).score(["Is: "], ["Yes, it is."], "\n", cast(Any, HOST))


@pytest.mark.parametrize(
    ("top", "labels", "expected"),
    [
        ({"Yes": HALF, "No": QUARTER}, ["Yes", "No"], [0.5, 0.25]),
        ({" Yes": HALF, "yes": 0.1, "No": QUARTER}, ["Yes", "No"], [0.5, 0.25]),
        ({"Y": QUARTER, "Yes": QUARTER, "N": QUARTER}, ["Yes", "No"], [0.5, 0.25]),
        ({"": HALF, "Yes": HALF, "No": QUARTER}, ["Yes", "No"], [0.5, 0.25]),
        ({"N": HALF, "No": QUARTER, "Nev": QUARTER}, ["No", "Never"], [0.25, 0.25]),
    ],
)
def test_labels_are_scored_by_the_tokens_that_begin_one_of_them(
    top: dict[str, float], labels: list[str], expected: list[float]
) -> None:
    api = Api(top={text: min(value, 0.0) for text, value in top.items()})
    [scores] = generator(api).score(["Is it?"], labels, "\n", cast(Any, HOST))
    assert [math.exp(score) for score in scores] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [(["Yes", "No"], [0.5, 0.25]), (["Yesterday"], [0.5]), (["Maybe"], [0.25]), ([" Yes"], [0.25])],
)
def test_what_the_server_does_not_show_is_at_most_the_rest(
    candidates: list[str], expected: list[float]
) -> None:
    model = generator(Api())
    found = model.next_logprobs(model.encode(ASK), candidates, HOST)
    assert [math.exp(value) for value in found] == pytest.approx(expected)
    assert model.next_logprobs_many([model.encode(ASK)] * 2, candidates, cast(Any, HOST)) == [found] * 2
    sure = generator(Api(top={"Yes": math.log(0.9), "No": math.log(0.06)}))
    [value] = sure.next_logprobs(sure.encode(ASK), ["Maybe"], HOST)
    assert math.exp(value) == pytest.approx(0.04)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"choices": 3},
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"token": "a"}]}}]},
        {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": 0.1}]}}]},
        {"choices": [], "usage": {"prompt_tokens": "many"}},
    ],
)
def test_an_answer_of_another_form_is_refused(event: Mapping[str, Any]) -> None:
    class Broken(Api):
        def events(self, *_: object) -> Iterator[Mapping[str, Any]]:
            yield event

    with pytest.raises(EngineAnswerError):
        said(generator(Broken()))


def test_conversations_without_an_answer_have_no_tokens() -> None:
    prompts: Sequence[Any] = [generator(Api()).encode(ASK)]
    done = [Completion()]
    assert generator(Api()).stream_many(prompts, [Sampling(4)], done, cast(Any, HOST)) == [""]
    assert (done[0].logprobs, done[0].finish_reason) == ([], "stop")
