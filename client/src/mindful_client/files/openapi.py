"""API specifications, OpenAPI 3 and Swagger 2, as one text for each operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mindful_client.files import LONGEST, UnreadableError

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_VERSION = re.compile(r"^[^\S\n]*(?:\{\s*)?[\"']?(?:openapi|swagger)[\"']?\s*:", re.MULTILINE)
_DEEPEST = 3
"""Largest depth of nested named schemas."""


@dataclass(frozen=True)
class Specification:
    """An API: its title, version, and operations for document_insert_parts."""

    title: str
    operations: list[dict[str, Any]]


def read_specification(name: str, text: str) -> Specification | None:
    """Read an API specification. Return None if the text is something else. Raises UnreadableError."""
    if not name.lower().endswith((".json", ".yaml", ".yml")) or not _VERSION.search(text):
        return None
    import jsonref

    document = _parse(name, text)
    if not isinstance(document, Mapping) or not ("openapi" in document or "swagger" in document):
        return None
    try:
        resolved = jsonref.replace_refs(document, loader=_refuse)
        info = _mapping(resolved.get("info"))
        title = " ".join(str(info[key]) for key in ("title", "version") if info.get(key))
        operations = [_part(*operation) for operation in _operations(resolved)]
    except (jsonref.JsonRefError, RecursionError) as error:
        raise UnreadableError(f"has a reference that cannot be followed: {error}") from error
    if not operations:
        raise UnreadableError("is an API specification without operations")
    return Specification(title or name, operations)


def _parse(name: str, text: str) -> Any:
    import yaml

    try:
        if name.lower().endswith(".json"):
            return json.loads(text)
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except json.JSONDecodeError as error:
        raise UnreadableError(f"is broken JSON: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        raise UnreadableError(f"is broken YAML{place}: {getattr(error, 'problem', error)}") from error
    except RecursionError as error:
        raise UnreadableError("is nested too deeply") from error


def _refuse(uri: str, **_: object) -> Any:
    raise ValueError(f"{uri} is outside the file")


def _operations(document: Any) -> Iterator[tuple[str, str, Mapping[str, Any], list[Mapping[str, Any]]]]:
    for path, item in _mapping(document.get("paths")).items():
        shared = _mappings(_mapping(item).get("parameters"))
        for method in _METHODS:
            operation = _mapping(item).get(method)
            if isinstance(operation, Mapping):
                own = _mappings(operation.get("parameters"))
                named = {(parameter.get("in"), parameter.get("name")) for parameter in own}
                inherited = [one for one in shared if (one.get("in"), one.get("name")) not in named]
                yield method.upper(), str(path), operation, [*inherited, *own]


def _part(
    method: str, path: str, operation: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    key = f"{method} {path}"
    lines = [
        key,
        *(str(operation[name]).strip() for name in ("summary", "description") if operation.get(name)),
    ]
    if operation.get("deprecated"):
        lines.append("Deprecated.")
    lines += _section("Parameters:", map(_parameter, parameters))
    lines += _section("Request body:", _contents(_mapping(operation.get("requestBody"))))
    responses = _mapping(operation.get("responses")).items()
    lines += _section(
        "Responses:", (_response(str(status), _mapping(answer)) for status, answer in responses)
    )
    tags = [str(tag) for tag in operation.get("tags") or []]
    identity = {
        "method": method,
        "path": path,
        "operation_id": operation.get("operationId"),
        "tags": tags or None,
    }
    content = "\n".join(lines).encode()[:LONGEST].decode(errors="ignore").replace("\0", "")
    return {
        "key": key,
        "content": content,
        "heading": ", ".join(tags) or None,
        "metadata": {name: value for name, value in identity.items() if value is not None},
    }


def _section(name: str, lines: Iterator[str]) -> list[str]:
    found = [f"- {line}" for line in lines]
    return [name, *found] if found else []


def _parameter(parameter: Mapping[str, Any]) -> str:
    kind = _shape(parameter.get("schema") or parameter)
    facts = [str(parameter.get("in", "?")), kind, *(["required"] if parameter.get("required") else [])]
    return _described(f"{parameter.get('name', '?')} ({', '.join(facts)})", parameter)


def _contents(holder: Mapping[str, Any]) -> Iterator[str]:
    for media, content in _mapping(holder.get("content")).items():
        yield _described(f"{media}: {_shape(_mapping(content).get('schema'))}", holder)


def _response(status: str, response: Mapping[str, Any]) -> str:
    schemas = [_mapping(content).get("schema") for content in _mapping(response.get("content")).values()]
    shapes = dict.fromkeys(_shape(schema) for schema in [*schemas, response.get("schema")] if schema)
    return _described(" ".join([status, *shapes]), response)


def _described(name: str, holder: Mapping[str, Any]) -> str:
    description = " ".join(str(holder.get("description") or "").split())
    return f"{name}: {description}" if description else name


def _shape(schema: Any, within: tuple[str, ...] = ()) -> str:
    """Write a schema as one line: Pet {id: integer, tag?: string}, [string], "a" | "b"."""
    if not isinstance(schema, Mapping):
        return "any"
    reference = getattr(schema, "__reference__", None)
    name = reference["$ref"].rsplit("/", 1)[-1] if reference else ""
    if not name:
        return _written(schema, within)
    if name in within or len(within) == _DEEPEST:
        return name
    return f"{name} {_written(schema, (*within, name))}"


def _written(schema: Mapping[str, Any], within: tuple[str, ...]) -> str:
    for word, joint in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
        if isinstance(schema.get(word), Sequence):
            return joint.join(_shape(option, within) for option in schema[word])
    if isinstance(schema.get("enum"), Sequence):
        return " | ".join(json.dumps(value, default=str, ensure_ascii=False) for value in schema["enum"])
    if "items" in schema:
        return f"[{_shape(schema['items'], within)}]"
    if properties := _mapping(schema.get("properties")):
        required = schema.get("required") or []
        fields = (
            f"{name}{'' if name in required else '?'}: {_shape(value, within)}"
            for name, value in properties.items()
        )
        return f"{{{', '.join(fields)}}}"
    kind = schema.get("type", "any")
    kind = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    return f"{kind} ({schema['format']})" if schema.get("format") else kind


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []
