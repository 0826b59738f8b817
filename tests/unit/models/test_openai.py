"""Models behind a server: what may go wrong on the way, and where they may be."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mindful.core.errors import (
    AddressError,
    ContextLengthError,
    EngineAnswerError,
    EngineError,
    InvalidParameterError,
    MindfulError,
    NotReadyError,
)
from mindful.core.ports import Completion, Message, ModelSpec, Sampling
from mindful.models.providers import openai
from mindful.models.providers.openai import http
from mindful.models.providers.openai.address import Address, entry, parse, targets
from mindful.models.providers.openai.constraint import Constraints, is_plain
from support.clock import Clock, within
from support.misbehaving import DIMS, WORDS, Server, misbehaving

OPTIONS = {
    "model": "fake",
    "server": "openai",
    "context_length": 512,
    "labels": "top_logprobs",
    "silence_s": 1,
    "timeout_s": 3,
}


class CancelledError(Exception):
    """What a cancel raises."""


class Host:
    """A backend whose user cancels at a time."""

    threads = 1

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.cancels: Clock | None = None
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.pending():
            raise CancelledError

    def pending(self) -> bool:
        return self.cancels is not None and self.cancels.begun()

    def cancel(self, clock: Clock, after_s: float) -> None:
        """Cancel at a time to come, from which on the clock measures."""
        clock.start(after_s)
        self.cancels = clock

    def directory(self) -> str:
        return self._directory


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http, "_BACK_OFF_S", (0.01, 0.02))
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


def generate(generator: Any, host: Host) -> str:
    tokens = generator.encode([Message("user", "What is the capital of France?")])
    return "".join(generator.stream(tokens, Sampling(16), Completion(), host))


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


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("hang", EngineError, "did not answer in time"),
        ("half", EngineError, "in the middle"),
        ("silent", EngineError, "did not answer in time"),
        ("500", EngineError, "status 500"),
        ("json", EngineError, "in the middle"),
        ("huge", EngineAnswerError, "line without end"),
        ("line", EngineAnswerError, "line without end"),
        ("drip", EngineError, "did not answer in time"),
        ("redirect", EngineAnswerError, "redirects"),
        ("401", AddressError, "refuses the key"),
        ("context", ContextLengthError, "more tokens than the server"),
        ("plain", EngineAnswerError, "log-probabilities"),
    ],
)
def test_each_way_to_fail_is_an_error_that_says_so(
    server: Server, host: Host, mode: str, error: type[MindfulError], words: str
) -> None:
    for _ in within(8):
        with pytest.raises(error, match=words) as caught:
            generate(model(server, mode, host), host)
    assert "sk-secret" not in f"{caught.value} {caught.value.hint}"
    assert server.redirected == 0


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


WORK: dict[str, Callable[[Any, Host], object]] = {
    "hang": generate,
    "silent": generate,
    "slow": generate,
    "drip": generate,
}


@pytest.mark.parametrize("mode", WORK)
def test_a_cancel_closes_the_connection_at_once(server: Server, host: Host, mode: str) -> None:
    generator = model(server, mode, host, silence_s=60, timeout_s=60)
    for clock in within(0.2):
        host.cancel(clock, 0.2)
        with pytest.raises(CancelledError):
            generate(generator, host)
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
    assert generate(model(server, "closes", host), host) == "".join(WORDS)


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


@pytest.mark.parametrize(
    "source",
    [
        "",
        "127.0.0.1:80",
        "ftp://127.0.0.1/v1",
        "file:///etc/passwd",
        "http://",
        "http://user:sk-secret@127.0.0.1/v1",
        "http://127.0.0.1/v1?key=sk-secret",
        "http://127.0.0.1/v1#x",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:0/v1",
        "http://127.0.0.1\r\nX: y/v1",
        "http://127.0.0.1\\@10.0.0.1/v1",
        "unix:relative.sock",
        "unix:" + "/x" * 60,
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(source: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        parse(source)
    assert "sk-secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "source",
    [
        "http://10.0.0.1/v1",
        "http://192.168.1.1/v1",
        "http://172.16.0.1:8080/v1",
        "http://169.254.169.254/v1",
        "http://[fe80::1]/v1",
        "http://[fd00:ec2::254]/v1",
        "http://[::ffff:169.254.169.254]/v1",
        "http://[::ffff:10.0.0.1]/v1",
        "http://[64:ff9b::7f00:1]/v1",
        "http://0.0.0.0/v1",
        "http://[::]/v1",
        "http://224.0.0.1/v1",
        "http://8.8.8.8/v1",
        "http://0x0a000001/v1",
        "http://167772161/v1",
        "https://1.1.1.1/v1",
    ],
)
def test_addresses_beyond_this_machine_are_refused_unless_the_owner_lists_them(
    source: str, host: Host
) -> None:
    address = parse(source)
    with pytest.raises(AddressError, match="not allowed"):
        targets(address, entry(address, host.directory()), host)


@pytest.mark.parametrize(
    "source", ["http://127.0.0.1:8080/v1", "http://127.9.9.9/v1", "http://[::1]:1/v1", "http://localhost/v1"]
)
def test_this_machine_is_allowed(source: str, host: Host) -> None:
    address = parse(source)
    assert targets(address, entry(address, host.directory()), host)


def listed(host: Host, *lines: str, mode: int = 0o600) -> None:
    path = Path(host.directory()) / "mindful.servers"
    path.write_text("\n".join(["# where models are", *lines]))
    path.chmod(mode)


def test_the_owner_allows_an_address_and_gives_its_key(host: Host) -> None:
    listed(host, "http://10.0.0.1:8080  sk-secret  # the large one", "http://10.0.0.2")
    address = parse("http://10.0.0.1:8080/v1")
    found = entry(address, host.directory())
    assert targets(address, found, host)
    assert found.key == "sk-secret"
    assert "sk-secret" not in repr(found)
    for other in ("http://10.0.0.1:8081/v1", "http://10.0.0.2:8080/v1", "https://10.0.0.1:8080/v1"):
        address = parse(other)
        found = entry(address, host.directory())
        assert found.key is None
        with pytest.raises(AddressError):
            targets(address, found, host)


def test_a_file_of_servers_that_others_may_read_is_refused(host: Host) -> None:
    listed(host, "http://10.0.0.1", mode=0o644)
    with pytest.raises(NotReadyError, match="other users"):
        entry(parse("http://10.0.0.1/v1"), host.directory())


@pytest.mark.parametrize("leads_to", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
def test_a_listed_name_that_leads_to_this_machine_or_network_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, leads_to: str
) -> None:
    """DNS rebinding: a name of the outside is made to lead inside."""
    resolve_to(monkeypatch, leads_to)
    listed(host, "https://models.example.com")
    address = parse("https://models.example.com/v1")
    with pytest.raises(AddressError):
        targets(address, entry(address, host.directory()), host)


def test_a_name_is_looked_up_once_a_connection(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve_to(monkeypatch, "10.0.0.7")
    listed(host, "http://gpu.internal:8080", "10.0.0.0/24")
    address = parse("http://gpu.internal:8080/v1")
    assert targets(address, entry(address, host.directory()), host) == [(socket.AF_INET, ("10.0.0.7", 8080))]
    assert asked == ["gpu.internal"]


def test_a_cancel_does_not_wait_for_a_name(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> list[Any]:
        time.sleep(1.5)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    listed(host, "http://gpu.internal")
    address = parse("http://gpu.internal/v1")
    for clock in within(0.2):
        host.cancel(clock, 0.1)
        with pytest.raises(CancelledError):
            targets(address, entry(address, host.directory()), host)


def test_another_users_socket_is_refused(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        address = parse(f"unix:{path}")
        assert targets(address, entry(address, host.directory()), host)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        if path.stat().st_uid == 0:
            os.chown(path, 54321, -1)
        with pytest.raises(AddressError, match="another operating system user"):
            targets(address, entry(address, "/nowhere"), host)


def resolve_to(monkeypatch: pytest.MonkeyPatch, ip: str) -> list[str]:
    asked: list[str] = []
    family = socket.AF_INET6 if ipaddress.ip_address(ip).version == 6 else socket.AF_INET

    def resolve(name: str, port: int, **_: object) -> list[Any]:
        asked.append(name)
        return [(family, socket.SOCK_STREAM, 6, "", (ip, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


def test_an_address_has_no_secret() -> None:
    assert parse("http://[::1]:8080/v1") == Address("http", "::1", 8080, "/v1")
    assert parse("http://[::1]:8080/v1/").origin == "http://[::1]:8080"
    assert parse("unix:/run/m/engine.sock").origin == "unix:/run/m/engine.sock"


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
    for dialect in ("llama.cpp", "llama-cpp-python"):
        generator = model(server, "ok", host, server=dialect)
        sampling = Sampling(4, grammar='root ::= "a"', schema=STALLING[0])
        with pytest.raises(MindfulError, match="json_schema with many alternatives"):
            generator.stream_many([[1, 2]], [sampling], [Completion()], host)
    assert not server.requests


def bounded(grammar: str, host: Host) -> Any:
    options = {"server": "llama.cpp", "llguidance": True}
    return Constraints(options).of(Sampling(4, grammar=grammar, is_users_grammar=True), host)


def test_an_answer_that_leaves_its_grammar_is_refused(host: Host) -> None:
    constraint = bounded('root ::= ("Bergen" | "\u4f60")+', host)
    assert constraint.body["grammar"].startswith("%llguidance {}\nstart:")
    for piece in (b"Ber", b"gen", "\u4f60".encode()[:2], "\u4f60".encode()[2:]):
        constraint.take(piece)
    with pytest.raises(MindfulError, match="generated so far") as caught:
        constraint.take(b"Oslo")
    assert caught.value.sqlstate == "54000"


@pytest.mark.parametrize(
    ("grammar", "sqlstate"),
    [
        ('root ::= root "a"', "22023"),
        ("root ::= r0\n" + "".join(f"r{n} ::= r{n + 1}\n" for n in range(1500)) + 'r1500 ::= "a"', "54000"),
        (
            "root ::= r0\n" + "".join(f"r{n} ::= ((r{n + 1}*)?)+\n" for n in range(400)) + 'r400 ::= "a"',
            "54000",
        ),
    ],
)
def test_a_grammar_that_would_end_the_server_is_refused_here(host: Host, grammar: str, sqlstate: str) -> None:
    with pytest.raises(MindfulError) as caught:
        bounded(grammar, host)
    assert caught.value.sqlstate == sqlstate


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
