// SPDX-License-Identifier: MIT
// Shared by the cases of page_cases.mjs: Chromium, and a proxy in front of the server that slows, cuts and replaces
// answers. Modules come from $HEARTH_NODE_MODULES, the browser from $HEARTH_CHROMIUM.
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const require = createRequire(path.join(process.env.HEARTH_NODE_MODULES, "x.js"));
const puppeteer = (await import(require.resolve("puppeteer-core"))).default;
const AXE = fs.readFileSync(require.resolve("axe-core"), "utf8");
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
  "--disable-background-networking", "--disable-component-update"];

// A busy machine may stall the browser for many seconds, above all at its first start.
const PATIENCE_MS = 120000;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** The events of a chat stream: one for each text, the finish, [DONE]. */
export function eventsOf(texts, { done = true, more = [] } = {}) {
  const event = (object) => `data: ${JSON.stringify(object)}\n\n`;
  const chunk = (delta, reason = null) => event({ object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: reason }] });
  const usage = event({ choices: [], usage: { prompt_tokens: 1, completion_tokens: texts.length } });
  return [...more.map(event), ...texts.map((content) => chunk({ content })),
    ...(done ? [chunk({}, "stop"), usage, "data: [DONE]\n\n"] : [])];
}

/** A proxy on a free port. `rules` maps a path to fn(request, response, body), which returns true if it answered. */
export class Proxy {
  constructor(target, prefix = "") {
    Object.assign(this, { target: new URL(target), prefix, rules: {}, seen: [], sockets: new Set() });
    this.server = http.createServer((req, res) => this.take(req, res));
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
  }

  async start() {
    await new Promise((done) => { this.server.listen(0, "127.0.0.1", done); });
    this.url = `http://127.0.0.1:${this.server.address().port}${this.prefix}`;
    return this;
  }

  async stop() {
    this.rules = {};
    for (const socket of this.sockets) socket.destroy();
    await new Promise((done) => { this.server.close(done); });
  }

  async take(req, res) {
    const parts = [];
    for await (const part of req) parts.push(part);
    const body = Buffer.concat(parts);
    const where = req.url.slice(this.prefix.length);
    this.seen.push({ method: req.method, url: where, headers: req.headers, body: body.toString() });
    const rule = this.rules[where.split("?")[0]];
    if (rule && await rule(req, res, body)) return;
    this.forward(req, res, body, where);
  }

  forward(req, res, body, where) {
    const { hostname, port } = this.target;
    const onward = http.request({ hostname, port, path: where, method: req.method,
      headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    res.on("close", () => onward.destroy());
    onward.on("error", () => res.destroy());
    onward.end(body);
  }

  /** Chat answers become this stream: pieces of bytes, `delay` ms apart; cut: the connection is broken at the end. */
  streams(pieces, { delay = 0, cut = false } = {}) {
    this.rules["/v1/chat/completions"] = async (req, res) => {
      res.writeHead(200, { "Content-Type": "text/event-stream" });
      res.flushHeaders();
      for (const piece of pieces) {
        if (res.destroyed) return true;
        if (!res.write(piece)) await new Promise((done) => { res.once("drain", done); res.once("close", done); });
        if (delay) await sleep(delay);
      }
      if (cut) res.destroy();
      else res.end();
      return true;
    };
  }

  says(texts, options) {
    this.streams(eventsOf(texts, options), options);
  }

  /** A path is answered by an error of the API, `times` times. */
  refuses(where, status, error, headers = {}, times = Infinity) {
    this.rules[where] = async (req, res) => {
      if (times-- <= 0) return false;
      res.writeHead(status, { "Content-Type": "application/json", ...headers });
      res.end(JSON.stringify(error));
      return true;
    };
  }
}

export async function launch() {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), "hearth-chromium-"));
  const browser = await puppeteer.launch({ executablePath: process.env.HEARTH_CHROMIUM, headless: true,
    userDataDir: profile, args: ARGUMENTS, timeout: PATIENCE_MS });
  const close = async () => {
    await browser.close();
    // Processes of the browser that end after it may still write here.
    fs.rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  };
  return { browser, close };
}

/** A page in a context of its own, that notes what a page of ours must never do. */
export class Tab {
  static async open(browser, url, { context, width = 1000, height = 800, scheme = "light", ready = true } = {}) {
    const tab = new Tab();
    tab.context = context ?? await browser.createBrowserContext();
    tab.page = await tab.context.newPage();
    tab.origin = new URL(url).origin;
    tab.page.setDefaultTimeout(PATIENCE_MS);
    tab.faults = [];
    tab.watch();
    await tab.page.setViewport({ width, height });
    await tab.page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await tab.page.goto(url);
    if (ready) await tab.until(() => document.querySelector("#model").value !== "");
    return tab;
  }

  watch() {
    const { page, faults, origin } = this;
    page.on("pageerror", (e) => faults.push(`script error: ${e.message}`));
    page.on("console", (m) => {
      // The browser reports each refused request by itself.
      if (m.type() === "error" && !/Failed to load resource/.test(m.text())) faults.push(`console: ${m.text()}`);
    });
    page.on("dialog", (d) => { faults.push(`a dialog: ${d.message()}`); d.dismiss(); });
    page.on("popup", () => faults.push("a window was opened"));
    page.on("request", (r) => {
      const url = new URL(r.url());
      const isOurs = url.origin === origin || url.protocol === "data:" || url.protocol === "blob:";
      if (!isOurs) faults.push(`a request to ${r.url()}`);
      if (url.search || /prompt|message|key/.test(url.pathname + url.hash)) faults.push(`a URL that tells: ${r.url()}`);
    });
  }

  until(condition, ...args) {
    return this.page.waitForFunction(condition, { polling: 20 }, ...args);
  }

  /** The state of the last answer becomes one of these. */
  answered(...states) {
    const wanted = states.length ? states : ["done"];
    return this.until((list) => {
      const all = document.querySelectorAll("article");
      return all.length && list.includes(all[all.length - 1].dataset.state) && !document.querySelector("#stop:not([hidden])");
    }, wanted);
  }

  async ask(text) {
    await this.page.focus("#prompt");
    await this.page.$eval("#prompt", (box, value) => {
      box.value = value;
      box.dispatchEvent(new Event("input", { bubbles: true }));
    }, text);
    await this.page.keyboard.press("Enter");
  }

  texts() {
    return this.page.$$eval("article .text", (nodes) => nodes.map((node) => node.textContent));
  }

  lastText() {
    return this.page.$$eval("article .text", (nodes) => nodes.at(-1).textContent);
  }

  lastArticle(selector) {
    return this.page.$$eval("article", (all, css) => all.at(-1).querySelector(css)?.textContent ?? null, selector);
  }

  focused() {
    return this.page.evaluate(() => document.activeElement.id);
  }

  focusReaches(id) {
    return this.until((wanted) => document.activeElement.id === wanted, id);
  }

  async axe() {
    // Run in the devtools' own world, which the page's policy does not bind.
    const client = await this.page.createCDPSession();
    const { executionContextId } = await this.isolatedWorld(client);
    const run = async (expression) => {
      const { result, exceptionDetails } = await client.send("Runtime.evaluate",
        { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    };
    await run(AXE + "; undefined");
    return run(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.map((v) =>
      v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120) + " | " + n.failureSummary).join("\\n   ")))`);
  }

  async isolatedWorld(client) {
    const { frameTree } = await client.send("Page.getFrameTree");
    return client.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id, worldName: "axe" });
  }

  async close() {
    await this.context.close();
  }
}
