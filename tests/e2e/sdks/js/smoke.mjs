// Asks a gateway through JavaScript's SDKs and prints what came back as one JSON object, by case.
// Usage: node smoke.mjs BASE_URL KEY. What is right is judged by the test that started it.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI, { APIError, AuthenticationError } from "openai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const messages = [{ role: "user", content: "How is it in Lisbon?" }];
const long = "word ".repeat(6000);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const stranger = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
const provider = createOpenAICompatible({
  name: "ringway",
  baseURL,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider.chatModel("fake");
const weather = z.object({ city: z.string(), degrees: z.number() });
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
};

const cases = {
  async openai_chat() {
    const answer = await client.chat.completions.create({ model: "fake", messages });
    return { text: answer.choices[0].message.content, tokens: answer.usage.total_tokens };
  },
  async openai_stream() {
    const stream = client.chat.completions.stream({
      model: "fake",
      messages,
      stream_options: { include_usage: true },
    });
    let text = "";
    stream.on("content", (delta) => (text += delta));
    const whole = await stream.finalChatCompletion();
    return { text, whole: whole.choices[0].message.content, tokens: whole.usage.total_tokens };
  },
  async openai_tools() {
    const functions = [{ type: "function", function: { name: "get_weather", parameters } }];
    const answer = await client.chat.completions.create({
      model: "fake",
      messages,
      tools: functions,
    });
    const [call] = answer.choices[0].message.tool_calls;
    return {
      reason: answer.choices[0].finish_reason,
      name: call.function.name,
      arguments: JSON.parse(call.function.arguments),
    };
  },
  async openai_responses() {
    const first = await client.responses.create({ model: "fake", input: "How is it in Lisbon?" });
    const kinds = [];
    let text = "";
    const stream = await client.responses.create({
      model: "fake",
      input: "And now?",
      previous_response_id: first.id,
      stream: true,
    });
    for await (const event of stream) {
      kinds.push(event.type);
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    return { text: first.output_text, streamed: text, last: kinds.at(-1) };
  },
  async openai_embeddings() {
    const answer = await client.embeddings.create({ model: "fake-embedder", input: ["a", "b c"] });
    return { sizes: answer.data.map((one) => one.embedding.length), tokens: answer.usage };
  },
  async openai_errors() {
    const told = {};
    for (const [name, caller, content] of [
      ["key", stranger, "hi"],
      ["length", client, long],
    ]) {
      try {
        await caller.chat.completions.create({
          model: "fake",
          messages: [{ role: "user", content }],
        });
      } catch (error) {
        told[name] = {
          status: error.status,
          code: error.code,
          is_api: error instanceof APIError,
          is_auth: error instanceof AuthenticationError,
        };
      }
    }
    return told;
  },
  async ai_text() {
    const { text, usage, finishReason } = await generateText({ model, messages });
    return { text, tokens: usage.totalTokens, reason: finishReason };
  },
  async ai_stream() {
    const { textStream, usage } = streamText({ model, messages });
    let text = "";
    for await (const delta of textStream) text += delta;
    return { text, tokens: (await usage).totalTokens };
  },
  async ai_tools() {
    const asked = [];
    const { text } = await generateText({
      model,
      messages,
      stopWhen: stepCountIs(3),
      tools: {
        get_weather: tool({
          inputSchema: z.object({ city: z.string() }),
          execute: async ({ city }) => {
            asked.push(city);
            return "18 degrees";
          },
        }),
      },
    });
    return { asked, text };
  },
  async ai_object() {
    const { object } = await generateObject({ model, schema: weather, messages });
    return object;
  },
  async ai_embeddings() {
    const { embeddings } = await embedMany({
      model: provider.textEmbeddingModel("fake-embedder"),
      values: ["a", "b"],
    });
    return { sizes: embeddings.map((one) => one.length) };
  },
  async ai_errors() {
    try {
      await generateText({ model, maxRetries: 0, messages: [{ role: "user", content: long }] });
    } catch (error) {
      return { status: error.statusCode, code: JSON.parse(error.responseBody).error.code };
    }
    return {};
  },
};

const results = {};
for (const [name, run] of Object.entries(cases)) {
  try {
    results[name] = { ok: await run() };
  } catch (error) {
    results[name] = { failed: String(error.stack ?? error) };
  }
}
console.log(JSON.stringify(results));
