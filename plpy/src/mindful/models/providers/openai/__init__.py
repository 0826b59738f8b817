"""Models behind a server of OpenAI's form: llama.cpp's own, and any other, by TCP or a Unix socket."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mindful.core.errors import EngineAnswerError, InvalidParameterError
from mindful.core.ports import Completion, Host, Interrupts, Message, Model, ModelFacts, ModelSpec, Sampling
from mindful.models.providers.openai.address import parse
from mindful.models.providers.openai.connection import Limits
from mindful.models.providers.openai.http import Server
from mindful.models.providers.options import check_known, integer

DIALECTS = ("llama.cpp", "llama-cpp-python", "vllm", "openai")
_SHARED = ("model", "context_length", "server", "parallel", "connect_ms", "silence_s", "timeout_s")
_OPTIONS = {
    "generator": (
        *_SHARED,
        "top_logprobs",
        "labels",
        "echo_prefix",
        "prompt_cache",
        "grammars",
        "llguidance",
        "template",
        "stop",
        "system_prompt",
        "layout",
        "example",
        "acknowledge",
    ),
    "embedder": (*_SHARED, "strip_accents", "vector_type"),
    "reranker": _SHARED,
}
_DEFAULT_CONTEXT = {"generator": 2048, "embedder": 256, "reranker": 512}
"""Where neither the server nor an option says more: as the embedded engine's."""
_DEFAULT_PARALLEL = 4
_DEFAULT_TOP = 10
_REFRAIN = ", ".join(["a red house"] * 4)
_LIKELY = -3.0
"""The least mean log-probability of a refrain that is repeated. Of other words it is -8 and less."""
_PREFIXES = ("", "<|im_start|>", "<|endoftext|>", "<|begin_of_text|>", "<s>", "<bos>")
"""Tokens that begin a text. If a model adds none, llama-cpp-python reads each log-probability one place too late."""


def inspect(kind: str, source: str, options: Mapping[str, Any], host: Host) -> ModelFacts:
    """Ask a server what it is and have it answer once; what was found out becomes options."""
    check_known(options, _OPTIONS[kind])
    _check(options)
    server = _server(source, options, host)
    try:
        settings = dict(options) | _found(server, kind, options, host)
        if "template" in options and settings["server"] != "llama.cpp":
            raise InvalidParameterError(
                f"option template is for servers of llama.cpp, this one is of {settings['server']}",
                "Leave the option out, and start the server with the template.",
            )
        spec = ModelSpec("", kind, "openai", source, "", settings)
        dims: int | None = None
        if kind == "generator":
            settings |= _tried(spec, server, host)
        elif kind == "embedder":
            from mindful.models.providers.openai.embedder import ServedEmbedder

            dims = settings["dims"] = ServedEmbedder(server, host, None, 1, settings).dims
        else:
            from mindful.models.providers.openai.embedder import ServedReranker

            list(ServedReranker(server, host, settings).score("query", ["text"], host))
        # A server does not show its weights: the name it calls them by stands for them.
        identity = json.dumps([source, settings["model"], dims])
        sha256 = hashlib.sha256(identity.encode()).hexdigest()
        return ModelFacts(sha256, settings["context_length"], dims, None, settings)
    finally:
        server.close()


def load(spec: ModelSpec, host: Host) -> Model:
    """Make a model of a registered server; it is connected to at its first use.

    Options are checked again: an administrator may have updated the table.
    """
    check_known(spec.options, sorted({"dims", *_OPTIONS["generator"], *_OPTIONS["embedder"]}))
    _check(spec.options)
    for key in ("model", "server", "context_length"):
        if key not in spec.options:
            raise InvalidParameterError(
                f'model "{spec.name}" has no option {key}', "Register it again, or call model_serve."
            )
    integer(spec.options, "context_length", 2048, 16, 1 << 20)
    integer(spec.options, "dims", 1, 1, 1 << 16)
    return _model(spec, _server(spec.source, spec.options, host), host)


def _model(spec: ModelSpec, server: Server, host: Interrupts) -> Model:
    options = spec.options
    parallel = integer(options, "parallel", _DEFAULT_PARALLEL, 1, 256)
    if spec.kind == "generator":
        top = integer(options, "top_logprobs", _DEFAULT_TOP, 2, 20)
        context_length = int(options["context_length"])
        # Imported here, as a connection uses one of them.
        if options["server"] == "llama.cpp":
            from mindful.models.providers.openai.native import LlamaServerGenerator

            return LlamaServerGenerator(server, host, context_length, parallel, top, options)
        from mindful.models.providers.openai.chat import ChatGenerator

        return ChatGenerator(server, host, context_length, parallel, top, options)
    from mindful.models.providers.openai.embedder import ServedEmbedder, ServedReranker

    if spec.kind == "reranker":
        return ServedReranker(server, host, options)
    return ServedEmbedder(server, host, int(options.get("dims", 0)), parallel, options)


def _server(source: str, options: Mapping[str, Any], host: Host) -> Server:
    limits = Limits(
        integer(options, "connect_ms", 2000, 10, 60_000) / 1000,
        integer(options, "silence_s", 120, 1, 3600),
        integer(options, "timeout_s", 600, 1, 86_400),
    )
    return Server(parse(source), host.directory(), limits)


def _check(options: Mapping[str, Any]) -> None:
    if not isinstance(options.get("model", ""), str):
        raise InvalidParameterError("option model is no text", "Give the name that the server has for it.")
    if options.get("server", DIALECTS[0]) not in DIALECTS:
        raise InvalidParameterError(
            f"option server is {options['server']!r}", f"Servers are {', '.join(DIALECTS)}."
        )
    if options.get("labels", "echo") not in ("echo", "top_logprobs"):
        raise InvalidParameterError("option labels is not known", "Give echo or top_logprobs.")
    if not isinstance(options.get("echo_prefix", ""), str):
        raise InvalidParameterError(
            "option echo_prefix is no text", "Give the model's token that begins a text."
        )
    for key in ("prompt_cache", "grammars", "llguidance", "strip_accents"):
        if not isinstance(options.get(key, True), bool):
            raise InvalidParameterError(f"option {key} is no boolean", "Give true or false.")


def _found(server: Server, kind: str, options: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """Find out which server it is, what it calls its model, and how much that takes."""
    root, found = server.address.root, dict[str, Any]()
    listed = server.get(f"{server.address.path}/models", host) or {}
    models = [
        row for row in listed.get("data") or () if isinstance(row, dict) and isinstance(row.get("id"), str)
    ]
    names = [row["id"] for row in models]
    if "model" not in options and not names:
        raise EngineAnswerError(
            f"the server {server.address.origin} lists no model at {server.address.path}/models",
            'Give the option model, such as {"model": "NAME"}, and a source that ends in /v1.',
        )
    found["model"] = model = options.get("model") or names[0]
    row = next((row for row in models if row["id"] == model), {})
    longest = row.get("max_model_len")
    props = server.get(f"{root}/props", host) if "server" not in options else None
    defaults = (props or {}).get("default_generation_settings")
    if isinstance(defaults, dict):
        found["server"] = "llama.cpp"
        if kind == "generator" and "llguidance" in (
            row.get("tags") or ()
        ):  # asking a server without it ends it
            found["llguidance"] = True
        longest = defaults.get("n_ctx")
        slots = (props or {}).get("total_slots")
        found["parallel"] = options.get("parallel", slots if isinstance(slots, int) else _DEFAULT_PARALLEL)
    else:
        found["server"] = options.get("server") or _dialect(server, model, host)
    most = longest if isinstance(longest, int) and longest >= 16 else 1 << 20
    default = _DEFAULT_CONTEXT[kind] if kind == "embedder" or most == 1 << 20 else most
    found["context_length"] = integer(options, "context_length", min(default, most), 16, most)
    return found


def _dialect(server: Server, model: str, host: Host) -> str:
    """Tell by how it counts tokens which server it is."""
    root = server.address.root
    if _counts(server.ask(f"{root}/extras/tokenize/count", {"input": "Hi"}, host, (400, 422))):
        return "llama-cpp-python"
    body = {"model": model, "prompt": "Hi", "add_special_tokens": False}
    if _counts(server.ask(f"{root}/tokenize", body, host, (400, 422))):
        return "vllm"
    return "openai"


def _counts(answer: Mapping[str, Any] | None) -> bool:
    return answer is not None and isinstance(answer.get("count"), int)


def _tried(spec: ModelSpec, server: Server, host: Host) -> dict[str, Any]:
    """Have a generator answer, score and, where it may, repeat a prompt."""
    generator: Any = _model(spec, server, host)
    completion = Completion()
    tokens = generator.encode([Message("user", "Hi")])
    list(generator.stream(tokens, Sampling(2), completion, host))
    if not completion.logprobs:
        raise EngineAnswerError(
            "the server gives no log-probabilities, which confidence is made of",
            "Use a server that does, such as llama.cpp's, vLLM, or llama-cpp-python's with logits_all.",
        )
    generator.next_logprobs(tokens, ["Yes", "No"], host)
    if spec.options["server"] == "llama.cpp" or "labels" in spec.options:
        return {}
    return _labels(spec.options, server, host)


def _labels(options: Mapping[str, Any], server: Server, host: Host) -> dict[str, Any]:
    """Find out how labels are scored: by what the server tells of a repeated text, if it is that text's."""
    from mindful.models.providers.openai.chat import repetition

    prefixes: tuple[str, ...] = _PREFIXES if options["server"] == "llama-cpp-python" else ("",)
    if "echo_prefix" in options:
        prefixes = (options["echo_prefix"],)
    for prefix in prefixes:
        body = repetition(str(options["model"]), prefix + _REFRAIN)
        answer = server.ask(f"{server.address.path}/completions", body, host, (400, 422))
        if answer is None:  # it repeats nothing
            break
        if _repeats(answer):
            return {"labels": "echo", **({"echo_prefix": prefix} if prefix else {})}
    if "echo_prefix" in options:
        raise InvalidParameterError(
            f"after echo_prefix {options['echo_prefix']!r} the server does not tell how likely a repeated text is",
            "Leave the option out: registration looks for the text.",
        )
    return {"labels": "top_logprobs"}


def _repeats(answer: Mapping[str, Any]) -> bool:
    """Return whether a server told how likely a refrain was; llama-cpp-python can tell it of other words."""
    from mindful.models.providers.openai.chat import repeated

    again = repeated(answer, len(_REFRAIN) // 2, len(_REFRAIN))
    return bool(again) and sum(again) / len(again) > _LIKELY
