"""litellm against the service of MINDFUL_URL: fails where an answer is not as it should be."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import litellm

PARIS = "The capital of France is Paris."
ASK = [{"role": "user", "content": "What is the capital of France?"}]
SCRIPTED, GENERATOR, EMBEDDER = (
    f"openai/{os.environ[name]}" for name in ("SCRIPTED", "GENERATOR", "EMBEDDER")
)
GIVEN: dict[str, Any] = {
    "api_base": f"{os.environ['MINDFUL_URL']}/v1",
    "api_key": os.environ["MINDFUL_KEY"],
    "num_retries": 0,
    "max_retries": 0,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
        },
    },
}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}


def chat(model: str = SCRIPTED, **given: Any) -> Any:
    return litellm.completion(**({"model": model, "messages": ASK} | GIVEN | given))


whole = chat()
assert whole.choices[0].message.content == PARIS
assert whole.usage.completion_tokens == 6
chunks = list(chat(stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == PARIS
assert chunks[-1].usage.completion_tokens == 6
(call,) = chat(GENERATOR, tools=[WEATHER], tool_choice="required").choices[0].message.tool_calls
assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
assert set(json.loads(chat(GENERATOR, response_format=form, max_tokens=60).choices[0].message.content)) == {
    "name"
}
scored = chat(GENERATOR, logprobs=True, top_logprobs=2, max_tokens=3).choices[0].logprobs
assert [len(token.top_logprobs) for token in scored.content] == [2, 2, 2]
asked = asyncio.run(litellm.acompletion(model=SCRIPTED, messages=ASK, **GIVEN))
assert asked.choices[0].message.content == PARIS
vectors = litellm.embedding(model=EMBEDDER, input=["tea", "coffee"], **GIVEN)
assert [len(one["embedding"]) for one in vectors.data] == [384, 384]
first = litellm.responses(model=SCRIPTED, input=ASK[0]["content"], **GIVEN)
assert first.output[0].content[0].text == PARIS
for model, given, error in (
    ("openai/absent", {}, litellm.NotFoundError),
    (SCRIPTED, {"temperature": 99}, litellm.BadRequestError),
    (SCRIPTED, {"api_key": "wrong"}, litellm.AuthenticationError),
    (
        GENERATOR,
        {"messages": [{"role": "user", "content": "word " * 9000}]},
        litellm.ContextWindowExceededError,
    ),
):
    try:
        chat(model, **given)
    except error:
        continue
    raise AssertionError(f"{error.__name__} was expected")
