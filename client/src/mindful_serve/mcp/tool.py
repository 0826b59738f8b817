"""Tools: a function with annotated arguments becomes a name, two schemas, hints and a scope."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as Description
from mindful_client.errors import InvalidInputError
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from mindful_serve.mcp.call import Call, CallError

Run = Callable[..., Coroutine[Any, Any, BaseModel]]
TOOLS: dict[str, Tool] = {}


@dataclass(frozen=True)
class Tool:
    """A tool, the scope it needs, and whether it is offered without being asked for."""

    description: Description
    arguments: type[BaseModel]
    run: Run
    scope: str
    core: bool

    async def call(self, call: Call, arguments: dict[str, Any]) -> CallToolResult:
        """Run the tool; what fails is a result too, so that the model can correct its call."""
        try:
            await call.admit(self.scope)
            given = self._checked(arguments)
            result = await self.run(call, **{name: getattr(given, name) for name in type(given).model_fields})
        except CallError as error:
            return CallToolResult(content=[TextContent(type="text", text=error.text)], is_error=True)
        text = result.model_dump_json(exclude_none=True)
        return CallToolResult(
            content=[TextContent(type="text", text=text)],
            structured_content=result.model_dump(mode="json", exclude_none=True),
        )

    def _checked(self, arguments: dict[str, Any]) -> BaseModel:
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = ".".join(str(part) for part in first["loc"]) or "arguments"
            message = f"{name}: {first['msg'].removeprefix('Value error, ')}"
            hint = f"The input schema of {self.description.name} lists its arguments."
            raise CallError(message, sqlstate="22023", hint=hint) from None


def tool(
    title: str,
    *,
    scope: str = "memory",
    core: bool = False,
    reads: bool = False,
    deletes: bool = False,
    again: bool = False,
) -> Callable[[Run], Run]:
    """Register a function as a tool.

    reads: it changes nothing. deletes: it may remove what was stored. again: a second call changes nothing more.
    """
    hints = ToolAnnotations(
        title=title,
        read_only_hint=reads,
        destructive_hint=deletes,
        idempotent_hint=reads or again,
        open_world_hint=False,
    )

    def register(run: Run) -> Run:
        arguments, result = _models(run)
        description = Description(
            name=run.__name__,
            title=title,
            description=inspect.getdoc(run),
            input_schema=_schema(arguments),
            output_schema=_schema(result),
            annotations=hints,
        )
        TOOLS[run.__name__] = Tool(description, arguments, run, scope, core)
        return run

    return register


def chosen(names: Iterable[str]) -> frozenset[str]:
    """Return the tools that a client asks for by name, or by `core` or `all`."""
    found: set[str] = set()
    for name in names:
        if name == "all":
            found |= TOOLS.keys()
        elif name == "core":
            found |= {key for key, one in TOOLS.items() if one.core}
        elif name in TOOLS:
            found.add(name)
        else:
            raise InvalidInputError(
                f"there is no tool {name[:200]}",
                hint=f"Choose core, all, or some of {', '.join(TOOLS)}.",
            )
    return frozenset(found)


def _models(run: Run) -> tuple[type[BaseModel], type[BaseModel]]:
    """Return the models of a function's arguments, but for the call itself, and of its result."""
    hints = get_type_hints(run, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(run).parameters.items())[1:]:
        fields[name] = (hints[name], ... if parameter.default is parameter.empty else parameter.default)
    return create_model(run.__name__, __config__=ConfigDict(extra="forbid"), **fields), hints["return"]


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    _strip_titles(schema)
    return schema


def _strip_titles(schema: Any) -> None:
    """Leave out pydantic's titles: each client pays for them in tokens, and they repeat the names."""
    if isinstance(schema, list):
        for one in schema:
            _strip_titles(one)
    elif isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for name, one in schema.items():
            if name == "properties":
                for inner in one.values():
                    _strip_titles(inner)
            else:
                _strip_titles(one)
