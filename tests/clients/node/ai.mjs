// The npm package ai, over @ai-sdk/openai-compatible and over @ai-sdk/openai.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";

const { MINDFUL_URL, MINDFUL_KEY, SCRIPTED, GENERATOR, EMBEDDER } = process.env;
const baseURL = `${MINDFUL_URL}/v1`;
const compatible = createOpenAICompatible({
  name: "mindful", baseURL, apiKey: MINDFUL_KEY, includeUsage: true, supportsStructuredOutputs: true,
});
const openai = createOpenAI({ baseURL, apiKey: MINDFUL_KEY });
const PARIS = "The capital of France is Paris.";
const prompt = "What is the capital of France?";
const person = jsonSchema({
  type: "object", properties: { name: { type: "string", maxLength: 9 } }, required: ["name"], additionalProperties: false,
});
const get_weather = tool({
  description: "Returns the weather of a city.",
  inputSchema: jsonSchema({
    type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"], additionalProperties: false,
  }),
  execute: async ({ city }) => `Rain in ${city}.`,
});

// chat() sends to /v1/chat/completions, responses() to /v1/responses.
const kinds = [(name) => compatible(name), (name) => openai.chat(name), (name) => openai.responses(name)];
for (const model of kinds) {
  const whole = await generateText({ model: model(SCRIPTED), prompt, maxRetries: 0 });
  assert.equal(whole.text, PARIS);
  assert.equal(whole.finishReason, "stop");
  assert(whole.usage.outputTokens > 0);

  const stream = streamText({ model: model(SCRIPTED), prompt, maxRetries: 0, onError: ({ error }) => { throw error; } });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, PARIS);
  assert((await stream.usage).outputTokens > 0);
}
for (const [at, model] of kinds.entries()) {
  const providerOptions = { openai: { store: false } };
  const { output } = await generateText({
    model: model(GENERATOR), prompt: "Ann is a doctor. Who is she?", output: Output.object({ schema: person }),
    maxOutputTokens: 60, maxRetries: 0, providerOptions,
  });
  assert.equal(typeof output.name, "string");
  const called = await generateText({
    model: model(GENERATOR), prompt: "How is the weather in Rome?", tools: { get_weather }, toolChoice: "required",
    stopWhen: stepCountIs(1), maxRetries: 0, providerOptions,
  });
  assert.match(called.toolResults[0].output, /^Rain in (Paris|Rome)\.$/, `provider ${at}`);
  // The second step sends the call and its result back.
  const answered = await generateText({
    model: model(GENERATOR), prompt: "How is the weather in Rome?", tools: { get_weather },
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" }),
    stopWhen: stepCountIs(2), maxOutputTokens: 60, maxRetries: 0, providerOptions,
  });
  assert.equal(answered.steps.length, 2, `provider ${at}`);
  assert(answered.text.length > 0, `provider ${at}`);
}
for (const model of [compatible.textEmbeddingModel?.(EMBEDDER) ?? compatible.embeddingModel(EMBEDDER), openai.embedding(EMBEDDER)]) {
  const { embeddings } = await embedMany({ model, values: ["tea", "coffee"], maxRetries: 0 });
  assert.equal(embeddings.length, 2);
  assert.equal(embeddings[0].length, 384);
}
await assert.rejects(generateText({ model: compatible("absent"), prompt, maxRetries: 0 }), (error) => error.statusCode === 404);
