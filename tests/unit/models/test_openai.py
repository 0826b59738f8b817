"""Models behind a server: what may go wrong on the way."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.core.errors import (
    AddressError,
    ContextLengthError,
    EngineAnswerError,
    EngineError,
    InvalidParameterError,
    MindfulError,
)
from mindful.core.ports import Completion, Message, ModelSpec, Sampling
from mindful.models.providers import openai
from mindful.models.providers.openai import http
from mindful.models.providers.openai.connection import Limits
from mindful.models.providers.openai.constraint import is_plain
from support.clock import within
from support.misbehaving import DIMS, WORDS, Server, misbehaving
from unit.models.host import CancelledError, Host

OPTIONS = {
    "model": "fake",
    "server": "openai",
    "context_length": 512,
    "labels": "top_logprobs",
    "silence_s": 1,
    "timeout_s": 2,
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http, "_BACK_OFF_S", (0.01, 0.02))
    # Options are whole seconds, and tests wait for them.
    monkeypatch.setattr(openai, "Limits", lambda *seconds: Limits(*(one / 2 for one in seconds)))
    http._health.clear()
    with misbehaving() as running:
        yield running
        for one in _opened:
            one.close()
        _opened.clear()


_opened: list[Any] = []


def model(fake: Server, mode: str, host: Host, kind: str = "generator", **options: object) -> Any:
    spec = ModelSpec("m", kind, "openai", fake.source(mode), "", {**OPTIONS, **options})
    _opened.append(openai.load(spec, host))
    return _opened[-1]


def generate(generator: Any, host: Host, shown: bool = True) -> str:
    tokens = generator.encode([Message("user", "What is the capital of France?")])
    return "".join(generator.stream(tokens, Sampling(16, shown=shown), Completion(), host))


def test_an_answer_is_streamed_with_its_signals(server: Server, host: Host) -> None:
    generator, done = model(server, "ok", host), Completion()
    pieces = list(generator.stream(generator.encode([Message("user", "Hi")]), Sampling(16), done, host))
    assert pieces == WORDS
    assert done.logprobs == [-0.1] * len(WORDS)
    assert done.finish_reason == "stop"
    assert done.prompt_tokens == 7
    assert all(margin == pytest.approx(0.855, abs=1e-3) for margin in done.margins)


def test_a_connection_serves_one_request_after_the_other(server: Server, host: Host) -> None:
    generator = model(server, "ok", host)
    generate(generator, host)
    [first] = generator.server._idle
    generate(generator, host)
    assert generator.server._idle == [first]


_FAILURES = {
    "hang": (EngineError, "did not answer in time"),
    "half": (EngineError, "in the middle"),
    "silent": (EngineError, "did not answer in time"),
    "500": (EngineError, "status 500"),
    "drip": (EngineError, "did not answer in time"),
    "redirect": (EngineAnswerError, "redirects"),
    "401": (AddressError, "refuses the key"),
    "context": (ContextLengthError, "more tokens than the server"),
    "plain": (EngineAnswerError, "log-probabilities"),
}
_STREAMED = _FAILURES | {
    "json": (EngineError, "in the middle"),
    "huge": (EngineAnswerError, "line without end"),
    "line": (EngineAnswerError, "line without end"),
}
_WHOLE = _FAILURES | {
    "json": (EngineAnswerError, "no JSON object"),
    "list": (EngineAnswerError, "no JSON object"),
    "huge": (EngineAnswerError, "more than 67108864 bytes"),
}


@pytest.mark.parametrize(
    ("shown", "mode"), [*((True, mode) for mode in _STREAMED), *((False, mode) for mode in _WHOLE)]
)
def test_each_way_to_fail_is_an_error_that_says_so(
    server: Server, host: Host, shown: bool, mode: str
) -> None:
    error, words = (_STREAMED if shown else _WHOLE)[mode]
    for _ in within(8):
        with pytest.raises(error, match=words) as caught:
            generate(model(server, mode, host), host, shown=shown)
    assert "sk-secret" not in f"{caught.value} {caught.value.hint}"
    assert server.redirected == 0


def test_a_whole_answer_may_take_longer_than_a_server_may_be_silent(server: Server, host: Host) -> None:
    generator = model(server, "late", host, timeout_s=30)
    assert generate(generator, host, shown=False) == "".join(WORDS)
    prompt = generator.encode([Message("user", "Hi")])
    assert generator.stream_many([prompt], [Sampling(16)], [Completion()], host) == ["".join(WORDS)]
    with pytest.raises(EngineError, match="in time"):
        generate(model(server, "late", host), host)


@pytest.mark.parametrize(
    "mode", ["hang", "500", "json", "list", "huge", "drip", "redirect", "dims", "few", "nan"]
)
def test_no_broken_embedding_is_taken(server: Server, host: Host, mode: str) -> None:
    embedder = model(server, mode, host, "embedder", dims=DIMS)
    with pytest.raises((EngineError, EngineAnswerError)):
        embedder.embed(["one", "two"], host)


def test_embeddings_are_unit_vectors_in_the_order_of_their_texts(server: Server, host: Host) -> None:
    embedder = model(server, "ok", host, "embedder", dims=DIMS)
    texts = [f"text {at} {'x' * (at * 7 % 11)}" for at in range(100)]
    together = embedder.embed(texts, host)
    assert together == [embedder.embed([text], host)[0] for text in texts]
    assert all(sum(value * value for value in vector) == pytest.approx(1) for vector in together)


def test_an_answer_of_gigabytes_costs_no_memory(server: Server, host: Host) -> None:
    embedder = model(server, "huge", host, "embedder", dims=DIMS)
    with pytest.raises(EngineAnswerError, match="more than 67108864 bytes"):
        embedder.embed(["one"], host)


def test_scores_are_in_the_order_of_their_texts(server: Server, host: Host) -> None:
    texts = ["x" * at for at in range(1, 20)]
    assert list(model(server, "ok", host, "reranker").score("q", texts, host)) == [-at for at in range(1, 20)]
    with pytest.raises(EngineAnswerError):
        list(model(server, "few", host, "reranker").score("q", texts, host))


def test_a_request_is_sent_again_only_where_nothing_was_shown(server: Server, host: Host) -> None:
    assert generate(model(server, "once", host), host) == "".join(WORDS)
    assert server.requests["once"] == 2
    with pytest.raises(EngineError):
        generate(model(server, "half", host), host)
    assert server.requests["half"] == 1
    assert generate(model(server, "once", host), host, shown=False) == "".join(WORDS)
    with pytest.raises(EngineError):
        generate(model(server, "half", host), host, shown=False)
    assert server.requests["half"] == 3


def test_the_second_try_waits_and_the_third_waits_longer(
    server: Server, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = model(server, "500", host)
    monkeypatch.undo()
    waited: list[float] = []
    monkeypatch.setattr(http, "pause", lambda seconds, _: waited.append(seconds))
    with pytest.raises(EngineError, match="status 500"):
        generate(generator, host)
    assert waited == [pytest.approx(0.1), pytest.approx(0.4)]


def test_after_failures_a_server_is_left_alone_for_a_time(server: Server, host: Host) -> None:
    generator = model(server, "500", host)
    for _ in range(3):
        with pytest.raises(EngineError, match="status 500"):
            generate(generator, host)
    asked = server.requests["500"]
    with pytest.raises(EngineError, match="3 times in a row"):
        generate(generator, host)
    assert server.requests["500"] == asked
    assert generator.server.health.state == "paused"
    time.sleep(1.1)
    with pytest.raises(EngineError, match="status 500"):
        generate(generator, host)


def test_a_server_that_comes_back_is_asked_again(server: Server, host: Host) -> None:
    generator = model(server, "ok", host)
    generator.server.health.failures = 2
    generator.server.health.bad("it was down")
    with pytest.raises(EngineError):
        generate(generator, host)
    time.sleep(1.05)
    assert generate(generator, host) == "".join(WORDS)
    assert generator.server.health.state == "up"


def test_the_limits_are_those_of_the_page(host: Host) -> None:
    page = (Path(__file__).parents[3] / "docs/engines.md").read_text()
    told = dict(re.findall(r"^\| `(connect_ms|silence_s|timeout_s)` \| (\d+) \|", page, re.MULTILINE))
    server = openai._server("http://127.0.0.1:1/v1", {}, host)
    assert server._limits == (int(told["connect_ms"]) / 1000, int(told["silence_s"]), int(told["timeout_s"]))


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("mode", ["hang", "silent", "slow", "drip"])
def test_a_cancel_closes_the_connection_at_once(server: Server, host: Host, mode: str, shown: bool) -> None:
    generator = model(server, mode, host, silence_s=60, timeout_s=60)
    for clock in within(0.2):
        host.cancel(clock, 0.2)
        with pytest.raises(CancelledError):
            generate(generator, host, shown)
    assert server.closed.wait(60)
    assert generator.server._idle == []


def test_a_cancel_ends_requests_that_run_side_by_side(server: Server, host: Host) -> None:
    generator = model(server, "hang", host, silence_s=60, timeout_s=60, parallel=8)
    tokens = generator.encode([Message("user", "Hi")])
    for clock in within(0.3):
        host.cancel(clock, 0.3)
        with pytest.raises(CancelledError):
            generator.stream_many([tokens] * 20, [Sampling(4)] * 20, [Completion() for _ in range(20)], host)
    assert not [thread for thread in threading.enumerate() if "run" in thread.name]


def test_a_server_may_end_its_answer_by_closing_the_connection(server: Server, host: Host) -> None:
    embedder = model(server, "closes", host, "embedder", dims=DIMS)
    assert len(embedder.embed(["one", "two"], host)) == 2
    for shown in (True, False):
        assert generate(model(server, "closes", host), host, shown) == "".join(WORDS)


def test_a_cancel_ends_many_quick_requests(server: Server, host: Host) -> None:
    embedder = model(server, "ok", host, "embedder", dims=DIMS)
    embedder.embed(["one"], host)
    checks = host.checks
    for _ in range(5):
        embedder.embed(["one"], host)
    assert host.checks >= checks + 5


def test_barriers_are_looked_for_while_a_server_is_silent(server: Server, host: Host) -> None:
    with pytest.raises(EngineError):
        generate(model(server, "hang", host), host)
    assert host.checks > 20  # in a second


def test_labels_that_likely_tokens_do_not_tell_apart_are_refused(server: Server, host: Host) -> None:
    generator = model(server, "ok", host)
    [[yes, no]] = generator.score(["Text: a\nLabel:"], [" Yes", " No"], "\n", host)
    assert yes > no
    for labels in ([" Yes", " Yesterday"], [" Yes", " Maybe"]):
        with pytest.raises(MindfulError, match="do not tell the labels apart"):
            generator.score(["Text: a\nLabel:"], labels, "\n", host)


def test_a_template_is_for_servers_whose_prompts_are_tokens(server: Server, host: Host) -> None:
    with pytest.raises(InvalidParameterError, match="for servers of"):
        openai.inspect("generator", server.source("ok"), {"template": "{{ messages }}"}, host)


def test_what_is_learned_at_registration_becomes_options(server: Server, host: Host) -> None:
    facts = openai.inspect("generator", server.source("ok"), {"context_length": 512}, host)
    assert dict(facts.found) == {
        "model": "fake",
        "server": "openai",
        "context_length": 512,
        "labels": "top_logprobs",
    }
    assert openai.inspect("embedder", server.source("ok"), {}, host).dims == DIMS
    with pytest.raises(EngineAnswerError, match="log-probabilities"):
        openai.inspect("generator", server.source("plain"), {}, host)


def echo(*values: float | None) -> dict[str, Any]:
    """An answer that repeats the refrain as so many tokens of the same length."""
    offsets = [at * len(openai._REFRAIN) // (len(values) - 1) for at in range(len(values))]
    return {"choices": [{"logprobs": {"text_offset": offsets, "token_logprobs": list(values)}}]}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (echo(None, -9.0, -1.0, -4.0, -99.0), True),  # the last is a token of the answer
        (echo(None, -1.0, -3.0, -3.0, -1.0), False),
        (echo(None, -1.0, -9.0, -9.0, -1.0), False),
        ({}, False),
        ({"choices": []}, False),
        ({"choices": [{"logprobs": None}]}, False),
        ({"choices": [{"logprobs": {"text_offset": [0], "token_logprobs": []}}]}, False),
        ({"choices": [{"logprobs": {"text_offset": [40], "token_logprobs": [None]}}]}, False),
        ({"choices": [{"logprobs": {"text_offset": [], "token_logprobs": []}}]}, False),
    ],
)
def test_a_server_repeats_a_prompt_whose_log_probabilities_are_its_own(
    answer: dict[str, Any], expected: bool
) -> None:
    """llama-cpp-python reads them one place too late where a model adds no token for the beginning."""
    assert openai._repeats(answer) is expected


class Repeating:
    """A server that tells how likely a repeated text is if that begins with a prefix. It refuses without one."""

    address = SimpleNamespace(path="/v1")

    def __init__(self, prefix: str | None) -> None:
        self._prefix = prefix
        self.asked: list[str] = []

    def ask(self, path: str, body: Mapping[str, Any], host: Host, none_at: Sequence[int]) -> Any:
        self.asked.append(body["prompt"].removesuffix(openai._REFRAIN))
        if self._prefix is None:
            return None
        return echo(None, -9.0, *([-1.0, -1.0] if self.asked[-1] == self._prefix else [-9.0, -9.0]), -9.0)


@pytest.mark.parametrize(
    ("prefix", "options", "found", "asked"),
    [
        ("", {}, {"labels": "echo"}, [""]),
        ("<s>", {}, {"labels": "echo", "echo_prefix": "<s>"}, list(openai._PREFIXES[:5])),
        ("[BOS]", {}, {"labels": "top_logprobs"}, list(openai._PREFIXES)),
        ("<s>", {"server": "vllm"}, {"labels": "top_logprobs"}, [""]),
        (None, {}, {"labels": "top_logprobs"}, [""]),
        ("[BOS]", {"echo_prefix": "[BOS]"}, {"labels": "echo", "echo_prefix": "[BOS]"}, ["[BOS]"]),
        ("[BOS]", {"echo_prefix": "<s>"}, None, ["<s>"]),
        (None, {"echo_prefix": "<s>"}, None, ["<s>"]),
    ],
)
def test_the_text_that_has_a_server_repeat_another_is_looked_for_and_tried(
    host: Host, prefix: str | None, options: dict[str, Any], found: dict[str, Any] | None, asked: list[str]
) -> None:
    repeating = Repeating(prefix)
    given = {"model": "fake", "server": "llama-cpp-python"} | options
    if found is None:
        with pytest.raises(InvalidParameterError, match="after echo_prefix '<s>'"):
            openai._labels(given, cast(Any, repeating), cast(Any, host))
    else:
        assert openai._labels(given, cast(Any, repeating), cast(Any, host)) == found
    assert repeating.asked == asked


def test_a_users_grammar_is_sent_only_where_an_administrator_allows_it(server: Server, host: Host) -> None:
    sampling = Sampling(4, grammar='root ::= "a"', is_users_grammar=True)
    generator = model(server, "ok", host, server="llama.cpp")
    with pytest.raises(MindfulError, match="user's grammar") as caught:
        list(generator.stream([1, 2], sampling, Completion(), host))
    assert caught.value.sqlstate == "0A000"
    with pytest.raises(MindfulError, match="user's grammar"):
        generator.stream_many([[1, 2]], [sampling], [Completion()], host)
    allowed = model(server, "ok", host, server="llama.cpp", grammars=True)
    with pytest.raises(EngineAnswerError, match="404"):  # it was sent
        list(allowed.stream([1, 2], sampling, Completion(), host))


PLAIN: list[dict[str, Any]] = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}},
    {"type": "array", "items": {"anyOf": [{"const": f"t{at}"} for at in range(8)]}, "maxItems": 100},
    {"enum": ["red", "green", "blue"]},
    {
        "$defs": {"n": {"type": "object", "properties": {"left": {"$ref": "#/$defs/n"}}}},
        "$ref": "#/$defs/n",
    },
]
STALLING: list[dict[str, Any]] = [
    {
        "$defs": {
            "n": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"a": {"$ref": "#/$defs/n"}, key: {}},
                        "required": ["a", key],
                    }
                    for key in "bc"
                ]
            }
        },
        "$ref": "#/$defs/n",
    },
    {"type": "object", "properties": {f"p{at}": {"type": "string", "maxLength": 2000} for at in range(50)}},
    {"enum": [f"{'a' * 33}{at}" for at in range(1500)]},
]
"""Schemas that stopped llama.cpp's own grammars for more than 20 s."""


def test_only_plain_schemas_go_to_a_server_whose_grammars_have_no_bound(server: Server, host: Host) -> None:
    assert all(map(is_plain, PLAIN))
    assert not any(map(is_plain, STALLING))
    assert is_plain({"anyOf": [{"const": at} for at in range(64)]})
    assert not is_plain({"anyOf": [{"const": at} for at in range(65)]})
    for dialect in ("llama.cpp", "llama-cpp-python"):
        generator = model(server, "ok", host, server=dialect)
        sampling = Sampling(4, grammar='root ::= "a"', schema=STALLING[0])
        with pytest.raises(MindfulError, match="json_schema with many alternatives"):
            generator.stream_many([[1, 2]], [sampling], [Completion()], host)
    assert not server.requests


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_length": "many"},
        {"context_length": 1},
        {"server": "other"},
        {"model": 7},
        {"grammars": "yes"},
        {"dims": -1},
        {"unknown": 1},
        {"parallel": 0},
        {"model": None},
    ],
)
def test_options_that_were_written_into_the_registry_are_checked(
    server: Server, host: Host, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidParameterError):
        model(server, "ok", host, **wrong)
    options = {key: OPTIONS[key] for key in OPTIONS if key != "server"}
    with pytest.raises(InvalidParameterError, match="no option server"):
        openai.load(ModelSpec("m", "generator", "openai", server.source("ok"), "", options), host)


@pytest.mark.parametrize(("most", "read"), [(None, 50), (60, 50), (21, 30), (20, 20), (0, 0)])
def test_an_answer_is_read_to_its_end_or_to_its_limit(most: int | None, read: int) -> None:
    class Response:
        """Fifty bytes, ten at a time."""

        left = 50

        def read(self) -> bytes:
            self.left -= 10
            return b"x" * 10 if self.left >= 0 else b""

    response: Any = Response()
    assert len(http._body(response, most)) == read
