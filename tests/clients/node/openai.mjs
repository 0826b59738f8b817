// The npm package openai against the service of MINDFUL_URL: prints nothing, and fails where an answer is not as it should be.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { MINDFUL_URL, MINDFUL_KEY, MINDFUL_SLOW_KEY, SCRIPTED, GENERATOR, EMBEDDER } = process.env;
const client = new OpenAI({ baseURL: `${MINDFUL_URL}/v1`, apiKey: MINDFUL_KEY, maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const PARIS = "The capital of France is Paris.";
const tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Returns the weather of a city.",
    parameters: { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"] },
  },
};

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert(names.includes(GENERATOR) && names.includes(`mindful/${GENERATOR}`));

const whole = await client.chat.completions.create({ model: SCRIPTED, messages });
assert.equal(whole.choices[0].message.content, PARIS);
assert.equal(whole.choices[0].finish_reason, "stop");
assert.equal(whole.usage.completion_tokens, 6);

const stream = await client.chat.completions.create({
  model: SCRIPTED, messages, stream: true, stream_options: { include_usage: true },
});
let text = "", last;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta.content ?? "";
  last = chunk;
}
assert.equal(text, PARIS);
assert.deepEqual(last.choices, []);
assert.equal(last.usage.completion_tokens, 6);

const gathered = await client.chat.completions.stream({ model: SCRIPTED, messages }).finalChatCompletion();
assert.equal(gathered.choices[0].message.content, PARIS);

const forced = { model: GENERATOR, messages, tools: [tool], tool_choice: "required" };
const [call] = (await client.chat.completions.create(forced)).choices[0].message.tool_calls;
assert.equal(call.function.name, "get_weather");
assert(["Paris", "Rome"].includes(JSON.parse(call.function.arguments).city));
const streamed = await client.chat.completions.stream(forced).finalChatCompletion();
assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);

const scored = await client.chat.completions.create({
  model: GENERATOR, messages, max_tokens: 4, logprobs: true, top_logprobs: 2,
});
assert.deepEqual(scored.choices[0].logprobs.content.map((token) => token.top_logprobs.length), [2, 2, 2, 2]);

const schema = { type: "object", properties: { name: { type: "string", maxLength: 9 } }, required: ["name"], additionalProperties: false };
const parsed = await client.chat.completions.parse({
  model: GENERATOR, messages, max_tokens: 60, response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema } },
});
assert.equal(typeof JSON.parse(parsed.choices[0].message.content).name, "string");

const float = await client.embeddings.create({ model: EMBEDDER, input: ["tea", "coffee"], encoding_format: "float" });
const coded = await client.embeddings.create({ model: EMBEDDER, input: ["tea", "coffee"] });
assert.equal(float.data[0].embedding.length, coded.data[0].embedding.length);
coded.data[1].embedding.forEach((value, at) => assert(Math.abs(value - float.data[1].embedding[at]) < 1e-6));

const first = await client.responses.create({ model: SCRIPTED, input: messages[0].content });
assert.equal(first.output_text, PARIS);
const next = await client.responses
  .stream({ model: SCRIPTED, input: "And then?", previous_response_id: first.id })
  .finalResponse();
assert.equal(next.output_text, PARIS);

const kept = await client.chat.completions.create({ model: `mindful/${SCRIPTED}`, messages });
assert(kept.x_mindful.session_id);

const refused = (given) => client.chat.completions.create({ model: SCRIPTED, messages, ...given });
await assert.rejects(refused({ model: "absent" }), OpenAI.NotFoundError);
await assert.rejects(refused({ temperature: "hot" }), (error) =>
  error instanceof OpenAI.BadRequestError && error.param === "temperature" && error.type === "invalid_request_error");
await assert.rejects(refused({ model: GENERATOR, messages: [{ role: "user", content: "word ".repeat(9000) }] }), (error) =>
  error.code === "context_length_exceeded");
const stranger = new OpenAI({ baseURL: `${MINDFUL_URL}/v1`, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);

// A key of one request a minute: without retries a second one fails, with them the client waits as it is told.
const slow = (maxRetries) => new OpenAI({ baseURL: `${MINDFUL_URL}/v1`, apiKey: MINDFUL_SLOW_KEY, maxRetries });
await assert.rejects(async () => {
  for (let at = 0; at < 4; at++) await slow(0).models.list();
}, OpenAI.RateLimitError);
const started = Date.now();
await slow(3).models.list();
assert(Date.now() - started < 61_000);

const aborted = new AbortController();
const endless = await client.chat.completions.create(
  { model: GENERATOR, messages, stream: true, max_tokens: 1500, logit_bias: { 2: -100 } }, { signal: aborted.signal });
for await (const _ of endless) aborted.abort();
