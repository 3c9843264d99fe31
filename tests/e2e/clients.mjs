// SPDX-License-Identifier: MIT
// The official Node clients against running servers: node clients.mjs URL LOOP_URL. The second has the model that
// calls add(2, 3) and then answers. Prints a line for each case and exits 1 when one failed. Modules come from
// $HEARTH_NODE_MODULES.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [, , base, loop] = process.argv;
const loopText = "Together that is five.";
const require = createRequire(path.join(process.env.HEARTH_NODE_MODULES, "x.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const question = [{ role: "user", content: "What is 2+2?" }];
const model = (await client.models.list()).data[0].id;

const digit = { type: "integer", minimum: 0, maximum: 9 };
const addition = { description: "Add two digits.", parameters: {
  type: "object", required: ["a", "b"], additionalProperties: false, properties: { a: digit, b: digit } } };

const cases = {
  async models() {
    assert.equal((await client.models.retrieve(model)).id, model);
    await assert.rejects(client.models.retrieve("org/none"), (e) => e.status === 404 && e.code === "model_not_found");
  },
  async completions() {
    const body = { model, prompt: "Once upon a time", max_tokens: 16, temperature: 0 };
    const whole = await client.completions.create(body);
    let text = "";
    for await (const c of await client.completions.create({ ...body, stream: true })) text += c.choices[0].text;
    assert.equal(text, whole.choices[0].text);
    const two = await client.completions.create({ ...body, n: 2, stop: ["."], logprobs: 1 });
    assert.equal(two.choices.length, 2);
    assert.ok(!two.choices[0].text.includes("."));
    assert.equal(two.choices[1].logprobs.tokens.length, two.choices[1].logprobs.token_logprobs.length);
  },
  async chat() {
    const body = { model, messages: question, temperature: 0 };
    const whole = await client.chat.completions.create({ ...body, logprobs: true, top_logprobs: 2 });
    assert.match(whole.choices[0].message.content, /4/);
    let text = "", usage = null;
    const stream = await client.chat.completions.create({
      ...body, stream: true, stream_options: { include_usage: true } });
    for await (const c of stream) { text += c.choices[0]?.delta?.content ?? ""; usage = c.usage ?? usage; }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  },
  async chatStreamHelper() {
    const final = await client.chat.completions.stream({ model, messages: question, n: 2, temperature: 0 })
      .finalChatCompletion();
    assert.equal(final.choices.length, 2);
    assert.equal(final.choices[0].message.role, "assistant");
  },
  async embeddings() {
    const r = await client.embeddings.create({ model, input: "Hello" });
    const norm = r.data[0].embedding.reduce((s, x) => s + x * x, 0);
    assert.ok(Math.abs(norm - 1) < 1e-3, `norm ${norm}`);
  },
  async responses() {
    const r = await client.responses.create({ model, input: "What is 2+2?", temperature: 0 });
    assert.match(r.output_text, /4/);
  },
  async errors() {
    await assert.rejects(client.chat.completions.create({ model, messages: [] }),
      (e) => e.status === 400 && e.param === "messages" && !!e.requestID);
  },
  async abort() {
    const control = new AbortController();
    const stream = await client.chat.completions.create(
      { model, messages: question, stream: true, max_tokens: 900, ignore_eos: true }, { signal: control.signal });
    for await (const _ of stream) { control.abort(); break; }
    const free = async () => (await (await fetch(`${base}/slots`)).json()).running === 0;
    for (let i = 0; i < 500 && !(await free()); i++) await new Promise((r) => setTimeout(r, 10));
    assert.ok(await free());
  },
  async structuredOutput() {
    const { z } = await load("zod");
    const { zodResponseFormat, zodTextFormat } = await load("openai/helpers/zod");
    const Person = z.object({ name: z.string().max(8), age: z.number().int().min(0).max(120) });
    const chat = await client.chat.completions.parse({
      model, messages: question, max_tokens: 200, response_format: zodResponseFormat(Person, "person") });
    assert.deepEqual(Object.keys(chat.choices[0].message.parsed), ["name", "age"]);
    const answer = await client.responses.parse({
      model, input: "Who?", max_output_tokens: 200, text: { format: zodTextFormat(Person, "person") } });
    assert.ok(answer.output_parsed.age <= 120);
    const { default: Anthropic } = await load("@anthropic-ai/sdk");
    const message = await new Anthropic({ baseURL: base, apiKey: "none" }).messages.create({
      model, max_tokens: 200, messages: question,
      output_config: { format: { type: "json_schema", schema: addition.parameters } } });
    assert.deepEqual(Object.keys(JSON.parse(message.content[0].text)), ["a", "b"]);
    const { generateObject } = await load("ai");
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const provider = createOpenAICompatible({
      name: "hearth", baseURL: `${base}/v1`, supportsStructuredOutputs: true });
    const { object } = await generateObject({
      model: provider(model), prompt: "Who?", schema: Person, maxOutputTokens: 200 });
    assert.ok(object.name.length <= 8);
    const { ChatOpenAI } = await load("@langchain/openai");
    const langchain = new ChatOpenAI({
      model, maxTokens: 200, apiKey: "none", configuration: { baseURL: `${base}/v1` } });
    for (const method of ["jsonSchema", "functionCalling"]) {
      const parsed = await langchain.withStructuredOutput(Person, { method }).invoke("Who?");
      assert.ok(parsed.age >= 0 && parsed.name.length <= 8);
    }
    // any object; favoured quotes and brackets end it soon
    const { tokens } = await (await fetch(`${base}/tokenize`, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ content: "\"}", add_special: false }) })).json();
    const closing = new ChatOpenAI({
      model, maxTokens: 200, temperature: 0, apiKey: "none", configuration: { baseURL: `${base}/v1` },
      modelKwargs: { logit_bias: Object.fromEntries(tokens.map((id) => [id, 4])) } });
    const any = await closing.withStructuredOutput(z.looseObject({}), { method: "jsonMode" }).invoke("Answer in JSON.");
    assert.equal(typeof any, "object");
  },
  // Each library runs the tool of the model's call, sends the result, and ends with the model's text.
  async toolsOfOpenai() {
    const calls = [];
    const { parameters } = addition;
    const runner = new OpenAI({ baseURL: `${loop}/v1`, apiKey: "none", maxRetries: 0 }).chat.completions.runTools({
      model: "default", messages: question, tools: [{ type: "function", function: {
        name: "add", description: addition.description, parameters, parse: JSON.parse,
        function: (args) => { calls.push(args); return String(args.a + args.b); } } }] });
    assert.equal(await runner.finalContent(), loopText);
    assert.deepEqual(calls, [{ a: 2, b: 3 }]);
  },
  async toolsOfAnthropic() {
    const { default: Anthropic } = await load("@anthropic-ai/sdk");
    const { betaTool } = await load("@anthropic-ai/sdk/helpers/beta/json-schema");
    const claude = new Anthropic({ baseURL: loop, apiKey: "none", maxRetries: 0 });
    for (const stream of [false, true]) {
      const calls = [];
      const add = betaTool({ name: "add", description: addition.description, inputSchema: addition.parameters,
        run: (args) => { calls.push(args); return String(args.a + args.b); } });
      const final = await claude.beta.messages.toolRunner({
        model: "default", max_tokens: 200, messages: question, tools: [add], stream }).runUntilDone();
      assert.equal(final.content[0].text, loopText);
      assert.deepEqual(calls, [{ a: 2, b: 3 }]);
    }
  },
  async toolsOfVercelAi() {
    const { generateText, streamText, jsonSchema, stepCountIs, tool } = await load("ai");
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const model = createOpenAICompatible({ name: "hearth", baseURL: `${loop}/v1` })("default");
    const calls = [];
    const add = tool({ description: addition.description, inputSchema: jsonSchema(addition.parameters),
      execute: (args) => { calls.push(args); return args.a + args.b; } });
    const ask = { model, prompt: "What is 2+3?", tools: { add }, stopWhen: stepCountIs(3) };
    assert.equal((await generateText(ask)).text, loopText);
    let text = "";
    for await (const t of streamText(ask).textStream) text += t;
    assert.equal(text, loopText);
    assert.deepEqual(calls, [{ a: 2, b: 3 }, { a: 2, b: 3 }]);
  },
  async vercelAi() {
    const { generateText, streamText } = await load("ai");
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const provider = createOpenAICompatible({ name: "hearth", baseURL: `${base}/v1`, includeUsage: true });
    const { text } = await generateText({ model: provider(model), prompt: "What is 2+2?", temperature: 0 });
    assert.match(text, /4/);
    let joined = "";
    for await (const t of streamText({ model: provider(model), prompt: "What is 2+2?", temperature: 0 }).textStream)
      joined += t;
    assert.equal(joined, text);
  },
  async langchain() {
    const { ChatOpenAI, OpenAI: LegacyOpenAI } = await load("@langchain/openai");
    const options = { model, temperature: 0, apiKey: "none", configuration: { baseURL: `${base}/v1` } };
    const whole = (await new ChatOpenAI(options).invoke("What is 2+2?")).content;
    assert.match(whole, /4/);
    let joined = "";
    for await (const c of await new ChatOpenAI(options).stream("What is 2+2?")) joined += c.content;
    assert.equal(joined, whole);
    assert.equal(typeof (await new LegacyOpenAI({ ...options, maxTokens: 8 }).invoke("Once upon a time")), "string");
  },
  async filesAndBatches() {
    const { default: OpenAI, toFile, NotFoundError } = await load("openai");
    const c = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
    const line = (i) => ({ custom_id: `l${i}`, method: "POST", url: "/v1/chat/completions", body: { messages: question, max_tokens: 4 } });
    const data = [0, 1, 2].map((i) => JSON.stringify(line(i))).join("\n");
    const file = await c.files.create({ file: await toFile(Buffer.from(data), "in.jsonl"), purpose: "batch" });
    assert.equal((await c.files.waitForProcessing(file.id, { pollInterval: 10 })).status, "processed");
    assert.equal(await (await c.files.content(file.id)).text(), data);
    const order = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
    let batch = await c.batches.create({ ...order, metadata: { run: "1" } });
    while (["validating", "in_progress", "finalizing"].includes(batch.status)) batch = await c.batches.retrieve(batch.id);
    assert.equal(batch.status, "completed");
    assert.deepEqual(batch.request_counts, { total: 3, completed: 3, failed: 0 });
    const text = await (await c.files.content(batch.output_file_id)).text();
    assert.deepEqual(text.trimEnd().split("\n").map((row) => JSON.parse(row).custom_id), ["l0", "l1", "l2"]);
    const other = await c.batches.create(order);
    const seen = [];
    for await (const b of c.batches.list({ limit: 1 })) seen.push(b.id);
    assert.deepEqual(seen, [other.id, batch.id]);
    await assert.rejects(c.batches.cancel(batch.id), (e) => e.status === 400);
    await assert.rejects(c.batches.retrieve("batch_none"), NotFoundError);
    let left = other;
    while (["validating", "in_progress", "finalizing"].includes(left.status)) left = await c.batches.retrieve(left.id);
    assert.equal((await c.files.delete(file.id)).deleted, true);
  },
  async ollama() {
    const { Ollama } = await load("ollama");
    const c = new Ollama({ host: base });
    assert.equal((await c.list()).models[0].name, model);
    assert.ok((await c.show({ model })).capabilities.includes("tools"));
    const ask = { model, messages: question, options: { temperature: 0, num_predict: 12 } };
    const whole = await c.chat(ask);
    let text = "";
    for await (const part of await c.chat({ ...ask, stream: true })) text += part.message.content;
    assert.equal(text, whole.message.content);
    assert.ok(text);
    await assert.rejects(c.chat({ ...ask, model: "none" }), (e) => e.status_code === 404 && e.message.includes("'none'"));
    const looping = new Ollama({ host: loop });
    const tools = [{ type: "function", function: { name: "add", ...addition } }];
    const talk = { model: (await looping.list()).models[0].name, messages: [...question], tools };
    const { message } = await looping.chat(talk);
    assert.deepEqual(message.tool_calls[0].function.arguments, { a: 2, b: 3 });
    talk.messages.push(message, { role: "tool", tool_name: "add", content: "5" });
    assert.equal((await looping.chat(talk)).message.content, loopText);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`${name}: ok`);
  } catch (e) {
    failed++;
    console.log(`${name}: FAILED: ${e.stack ?? e}`);
  }
}
process.exit(failed ? 1 : 0);
