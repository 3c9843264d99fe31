// SPDX-License-Identifier: MIT
// Run by libraries_run.py: node libraries.mjs URL LOOP_URL. Agents, tools and structured output of libraries for Node,
// as that script has for Python. Modules come from $HEARTH_NODE_MODULES.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [, , demo, loop] = process.argv;
const require = createRequire(path.join(process.env.HEARTH_NODE_MODULES, "x.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { z } = await load("zod");
const question = "What is 2+3?";
const loopText = "Together that is five.";
const model = "default";
// Without limits and enums, which Anthropic's SDK leaves to the prompt.
const Person = z.strictObject({ tall: z.boolean(), old: z.boolean() });
const digits = z.strictObject({ a: z.number().int(), b: z.number().int() });
const calls = [];

function add({ a, b }) {
  calls.push([a, b]);
  return String(a + b);
}

function ranOnce(text) {
  assert.deepEqual(calls.splice(0), [[2, 3]]);
  assert.equal(text, loopText);
}

async function langchainModels(url) {
  const { ChatOpenAI } = await load("@langchain/openai");
  const { ChatAnthropic } = await load("@langchain/anthropic");
  const openai = { model, temperature: 0, maxTokens: 300, apiKey: "none", maxRetries: 0,
    configuration: { baseURL: `${url}/v1` } };
  return [new ChatOpenAI(openai), new ChatOpenAI({ ...openai, useResponsesApi: true }),
    new ChatAnthropic({ model, maxTokens: 300, apiKey: "none", maxRetries: 0, anthropicApiUrl: url })];
}

async function vercelModels(url) {
  const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
  const { createOpenAI } = await load("@ai-sdk/openai");
  const { createAnthropic } = await load("@ai-sdk/anthropic");
  const options = { baseURL: `${url}/v1`, apiKey: "none" };
  const openai = createOpenAI(options);
  return [createOpenAICompatible({ ...options, name: "hearth", supportsStructuredOutputs: true })(model),
    openai.chat(model), openai.responses(model), createAnthropic(options)(model)];
}

const cases = {
  async langchainAgent() {
    const { createAgent, tool } = await load("langchain");
    const tools = [tool(add, { name: "add", description: "Add two digits.", schema: digits })];
    const ask = { messages: [{ role: "user", content: question }] };
    for (const m of await langchainModels(loop)) {
      const agent = createAgent({ model: m, tools, systemPrompt: "Be brief." });
      ranOnce((await agent.invoke(ask)).messages.at(-1).text);
      let text = "";
      for await (const [chunk] of await agent.stream(ask, { streamMode: "messages" }))
        if (chunk.getType() === "ai") text += chunk.text;
      ranOnce(text);
    }
  },
  async langchainStructuredOutput() {
    for (const m of await langchainModels(demo))
      for (const method of ["functionCalling", "jsonSchema"])
        Person.parse(await m.withStructuredOutput(Person, { method, name: "person" }).invoke("Who?"));
  },
  async vercelAiTools() {
    const { generateText, streamText, stepCountIs, tool } = await load("ai");
    const tools = { add: tool({ description: "Add two digits.", inputSchema: digits, execute: add }) };
    for (const m of await vercelModels(loop)) {
      const ask = { model: m, prompt: question, tools, stopWhen: stepCountIs(3), maxOutputTokens: 300 };
      ranOnce((await generateText(ask)).text);
      let text = "";
      for await (const t of streamText(ask).textStream) text += t;
      ranOnce(text);
    }
  },
  async vercelAiObjects() {
    const { generateObject, generateText, streamObject, Output } = await load("ai");
    for (const m of await vercelModels(demo)) {
      const ask = { model: m, prompt: "Who?", maxOutputTokens: 300 };
      Person.parse((await generateObject({ ...ask, schema: Person })).object);
      let last;
      for await (const part of streamObject({ ...ask, schema: Person }).partialObjectStream) last = part;
      Person.parse(last);
      Person.parse((await generateText({ ...ask, output: Output.object({ schema: Person }) })).output);
    }
  },
  async openaiAgents() {
    const { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool } =
      await load("@openai/agents");
    const { default: OpenAI } = await load("openai");
    setTracingDisabled(true);
    const tools = [tool({ name: "add", description: "Add two digits.", parameters: digits, execute: add })];
    for (const Kind of [OpenAIResponsesModel, OpenAIChatCompletionsModel]) {
      const of = (url) => new Kind(new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }), model);
      const agent = new Agent({ name: "adder", instructions: "Be brief.", model: of(loop), tools });
      ranOnce((await run(agent, question)).finalOutput);
      const streamed = await run(agent, question, { stream: true });
      for await (const _ of streamed) { /* events */ }
      await streamed.completed;
      ranOnce(streamed.finalOutput);
      const reader = new Agent({ name: "reader", model: of(demo), outputType: Person });
      Person.parse((await run(reader, "Who?")).finalOutput);
    }
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
