"""Bodies of requests: what is not listed is refused. Members that change nothing here are listed as neutral."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Text = Annotated[str, Field(max_length=1 << 20)]
Messages = Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]
Count = Annotated[int, Field(ge=-1, le=1 << 30)]
Number = Annotated[float, Field(ge=-1e6, le=1e6)]
Index = Annotated[int, Field(ge=-(1 << 31), le=(1 << 31) - 1)]


SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repeat_penalty", "seed",
)  # fmt: skip
"""What llm_complete and llm_chat take by the same names."""


def given_of(body: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    """Return the members of a body that were given, of some."""
    return {name: value for name in names if (value := getattr(body, name, None)) is not None}


class Known(BaseModel):
    """An object whose members are all known; a member that is null is not given."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def given(cls, value: Any) -> Any:
        """Leave out what is null."""
        return (
            {key: one for key, one in value.items() if one is not None} if isinstance(value, dict) else value
        )


class Body(Known):
    """A body whose members are all known."""

    ARGUMENTS: ClassVar[Mapping[str, str]] = {}
    """Arguments of SQL functions that come from members of other names."""

    model: Annotated[str, Field(max_length=200)] = ""
    # Neutral: they say who asks, or ask for what is done anyway.
    user: Text | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    service_tier: Literal["auto", "default"] | None = None


class StreamOptions(Known):
    """What a stream tells beside text."""

    include_usage: bool = False


class Sampled(Body):
    """What requests for text have in common."""

    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Index | None = None
    min_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repeat_penalty: Number | None = None
    logit_bias: dict[str, Number] | None = None
    stop: Text | list[Text] | None = None
    seed: Index | None = None
    n: Index | None = None
    grammar: Text | None = None

    @field_validator("stream_options")
    @classmethod
    def of_a_stream(cls, options: StreamOptions | None, known: ValidationInfo) -> StreamOptions | None:
        """Refuse options of a stream where none is asked for."""
        if options is not None and not known.data.get("stream"):
            raise ValueError("stream is false")
        return options

    def sampling(self) -> dict[str, Any]:
        """Return the arguments of llm_complete that were given."""
        given = given_of(self, (*SAMPLING, "logit_bias", "n", "grammar"))
        if self.stop is not None:
            given["stop"] = [self.stop] if isinstance(self.stop, str) else self.stop
        return given | {"max_tokens": -1 if self.max_tokens is None else self.max_tokens}


class JsonSchema(Known):
    """A named schema."""

    name: Text
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")
    description: Text | None = None
    strict: bool | None = None


class ResponseFormat(Known):
    """What an answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def schema_of(self) -> dict[str, Any] | None:
        """Return the schema that the answer is held to."""
        if self.type == "json_schema":
            if self.json_schema is None:
                raise ValueError("json_schema is missing")
            return self.json_schema.schema_
        return {"type": "object"} if self.type == "json_object" else None


class NamedFunction(Known):
    """The name of a function."""

    name: Text


class ToolChoice(Known):
    """A function that must be called."""

    type: Literal["function"]
    function: NamedFunction


class ChatRequest(Sampled):
    """POST /v1/chat/completions."""

    ARGUMENTS = {"message": "messages", "json_schema": "response_format.json_schema"}

    messages: Messages
    max_completion_tokens: Count | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool = False
    top_logprobs: Index | None = None
    store: Literal[False] | None = None
    modalities: list[Literal["text"]] | None = None

    @field_validator("max_completion_tokens")
    @classmethod
    def one_limit(cls, count: int | None, known: ValidationInfo) -> int | None:
        """Refuse two limits."""
        if count is not None and known.data.get("max_tokens") is not None:
            raise ValueError("max_tokens is given too")
        return count

    def most_tokens(self) -> int | None:
        """Return the limit, by the name that it has today or by the older one."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class TextRequest(Sampled):
    """POST /v1/completions."""

    ARGUMENTS = {"messages": "prompt"}

    prompt: Text | list[Text]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None


class EmbeddingRequest(Body):
    """POST /v1/embeddings."""

    ARGUMENTS = {"content": "input"}

    input: Text | Annotated[list[Any], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Index | None = None


class RerankRequest(Body):
    """POST /v1/rerank."""

    ARGUMENTS = {"content": "documents"}

    query: Text
    documents: Annotated[list[Any], Field(min_length=1, max_length=2048)]
    top_n: Annotated[int, Field(ge=1, le=(1 << 31) - 1)] | None = None
    return_documents: bool = False


class ConversationRequest(Known):
    """POST /v1/conversations."""

    metadata: dict[str, str] | None = None


class TextFormat(Known):
    """What a response's text must be."""

    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    description: Text | None = None
    strict: bool | None = None


class ResponseText(Known):
    """The form of a response's text."""

    format: TextFormat | None = None


class ConversationName(Known):
    """The conversation that a response belongs to."""

    id: Annotated[str, Field(max_length=200)]


class NamedTool(Known):
    """A function that a response must call."""

    type: Literal["function"]
    name: Text


class ResponseRequest(Body):
    """POST /v1/responses."""

    ARGUMENTS = {
        "message": "input",
        "messages": "input",
        "system_prompt": "instructions",
        "max_tokens": "max_output_tokens",
        "json_schema": "text.format.schema",
    }

    input: Text | Messages
    instructions: Text | None = None
    previous_response_id: Annotated[str, Field(max_length=200)] | None = None
    conversation: Annotated[str, Field(max_length=200)] | ConversationName | None = None
    store: bool = True
    stream: bool = False
    max_output_tokens: Count | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    text: ResponseText | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["disabled"] | None = None
    include: Annotated[list[str], Field(max_length=0)] | None = None
    background: Literal[False] | None = None
