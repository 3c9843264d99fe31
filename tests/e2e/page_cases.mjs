// SPDX-License-Identifier: MIT
// The chat page in Chromium: node page_cases.mjs SERVER-URL [CASE...]. Without names all cases run. Prints a line
// per case and exits 1 if one failed. $HEARTH_KEYED_URL: a server whose key is $HEARTH_KEY; $HEARTH_SHOTS: a folder
// for screenshots. page_run.py and test_page_browser.py start it.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Proxy, Tab, eventsOf, launch, sleep } from "./page_browser.mjs";

const [server, ...wanted] = process.argv.slice(2);
const { browser, close } = await launch();
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "hearth-page-"));
const measured = [];
const note = (text) => { measured.push(text); console.log(`  ${text}`); };

// What the cases below open, closed at the end of each; a page that did what it never may fails its case.
let opened = [];

async function open(url = server, options = {}) {
  const tab = await Tab.open(browser, url, options);
  opened.push(tab);
  return tab;
}

async function proxied(prefix = "", target = server) {
  const proxy = await new Proxy(target, prefix).start();
  opened.push({ faults: [], close: () => proxy.stop() });
  return proxy;
}

async function metric(name) {
  const text = await (await fetch(`${server}/metrics`)).text();
  return Number(text.match(new RegExp(`^${name} (.*)$`, "m"))[1]);
}

async function busyFor(ms) {
  const from = Date.now();
  while (await metric("hearth_sequences_running") > 0)
    if (Date.now() - from > ms) throw new Error(`the slot is still busy after ${ms} ms`);
  return Date.now() - from;
}

const words = (n) => Array.from({ length: n }, (_, i) => `word${i} `);

let files = 0;

async function importText(tab, text) {
  const file = path.join(folder, `import-${files++}.json`);
  fs.writeFileSync(file, text);
  const input = await tab.page.$("#importer");
  await input.uploadFile(file);
}

const exported = (messages, more = {}) => ({ format: "hearth-conversations", version: 1,
  conversations: [{ title: "imported", created: 1, updated: Date.now() + 1e9, messages, ...more }] });

async function openNewest(tab) {
  await tab.page.click("#conversations");
  await tab.page.click("#items .open");
}

// ---- keyboard, stop, reload: what the suite runs too --------------------------------------------

const cases = {
  async keyboardOnly() {
    const tab = await open();
    const { page } = tab;
    await tab.focusReaches("prompt"); // focus at load
    await page.keyboard.type("What is 2+2?");
    await page.keyboard.press("Enter");
    await tab.answered();
    assert.match(await tab.lastText(), /4/);
    await tab.focusReaches("prompt"); // focus after sending
    await page.keyboard.type("line one");
    await page.keyboard.down("Shift");
    await page.keyboard.press("Enter");
    await page.keyboard.up("Shift");
    await page.keyboard.type("What is 3+3?");
    assert.equal(await page.$eval("#prompt", (box) => box.value), "line one\nWhat is 3+3?");
    await page.keyboard.down("Control");
    await page.keyboard.press("Enter");
    await page.keyboard.up("Control");
    await tab.until(() => document.querySelectorAll("article").length === 4);
    await tab.answered();
    assert.deepEqual(await page.$$eval("article", (all) => all.map((a) => [a.dataset.role, a.dataset.state, a.ariaLabel])),
      [["user", "done", "You"], ["assistant", "done", "Assistant"], ["user", "done", "You"],
        ["assistant", "done", "Assistant"]]);
    await tab.until(() => /^Answer complete, \d+ tokens$/.test(document.querySelector("#status").textContent));
  },

  async textGrowsAndEscapeStops() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    proxy.says(words(10000), { delay: 10 });
    await tab.ask("Count.");
    await tab.until(() => document.querySelector("article[data-role=assistant]")?.dataset.state === "streaming");
    assert.ok(await tab.page.$eval("#stop:not([hidden])", (b) => !b.disabled), "Stop while an answer comes");
    const first = (await tab.lastText()).length;
    await tab.until((n) => [...document.querySelectorAll(".text")].at(-1).textContent.length > n + 50, first);
    await tab.page.keyboard.press("Escape");
    await tab.answered("stopped");
    await tab.focusReaches("prompt"); // focus after Escape
    assert.equal(await tab.page.$("#stop:not([hidden])"), null, "no Stop without an answer");
    assert.match(await tab.lastText(), /^word0 word1 /);
  },

  async stopFreesTheSlot() {
    const tab = await open();
    const stopBy = {
      escape: () => tab.page.keyboard.press("Escape"),
      button: () => tab.page.click("#stop"),
      newConversation: () => tab.page.click("#new"),
    };
    for (const [name, stop] of Object.entries(stopBy)) {
      // A long answer of the real engine: paused in the middle, so that it cannot be over before the stop.
      const before = await metric("hearth_sequences_running");
      assert.equal(before, 0);
      await tab.ask("Tell me a story about a fox. ".repeat(60));
      await tab.until(() => document.querySelector("#stop:not([hidden])"));
      await stop();
      note(`slot free ${await busyFor(1000)} ms after ${name}`);
    }
  },

  async reloadKeepsAll() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    proxy.says(words(10000), { delay: 10 });
    await tab.ask("First <b>question</b>");
    await tab.until(() => [...document.querySelectorAll(".text")].at(-1).textContent.includes("word20"));
    await tab.page.focus("#prompt");
    await tab.page.keyboard.type("a draft");
    await tab.page.reload();
    await tab.until(() => document.querySelectorAll("article").length === 2);
    const [question, half] = await tab.texts();
    assert.equal(question, "First <b>question</b>");
    assert.match(half, /^word0 .*word20/);
    assert.equal(await tab.page.$eval("article:last-child", (a) => a.dataset.state), "stopped");
    assert.equal(await tab.page.$eval("#prompt", (box) => box.value), "a draft");
    await tab.focusReaches("prompt");
    proxy.rules = {};
    await tab.page.keyboard.press("Enter");
    await tab.until(() => document.querySelectorAll("article").length === 4);
    await tab.answered();
  },

  async headersAndRequests() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    await tab.ask("Hello");
    await tab.answered();
    await sleep(500); // for requests that must not come
    const answer = await tab.page.reload();
    assert.match(answer.headers()["content-security-policy"], /^default-src 'none'; script-src 'sha256-/);
    await tab.until(() => document.querySelector("#model").value);
    await sleep(500);
    const asked = new Set(proxy.seen.map((r) => `${r.method} ${r.url}`));
    assert.deepEqual([...asked].sort(), ["GET /", "GET /props", "GET /readyz", "GET /v1/models",
      "POST /v1/chat/completions"], "only what the user or the page's start asks for");
    assert.deepEqual(await tab.page.cookies(), []);
    assert.equal(await tab.page.evaluate(() => navigator.serviceWorker?.controller ?? null), null);
  },

  // ---- Markdown ---------------------------------------------------------------------------------

  async markdown() {
    const tab = await open();
    const html = (text) => tab.page.evaluate((t) => {
      const root = document.createElement("div");
      const markdown = new Markdown(root);
      markdown.feed(t);
      markdown.end();
      return root.innerHTML;
    }, text);
    const code = (name, text) => '<div class="code" dir="ltr"><div class="bar"><span>' + name + '</span><button type="button" ' +
      'class="quiet" data-act="copy-code" aria-label="Copy code">Copy</button></div><pre tabindex="0"><code>' + text +
      "</code></pre></div>";
    const a = (to, text) => `<a href="${to}" rel="noopener noreferrer" target="_blank">${text}</a>`;
    const host = (to, text, name) => `<span>${a(to, text)}<bdi class="host"> (${name})</bdi></span>`;
    const expected = [
      ["one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"],
      ["# A\n### B\n# C ##\n#no", "<h3>A</h3><h4>B</h4><h3>C</h3><p>#no</p>"],
      ["*a* **b** ***c*** _d_ __e__ ~~f~~", "<p><em>a</em> <strong>b</strong> <strong><em>c</em></strong> <em>d</em> " +
        "<strong>e</strong> ~~f~~</p>"],
      ["snake_case_name 2*3*4 ** x ** *a **b*", "<p>snake_case_name 2<em>3</em>4 ** x ** <em>a **b</em></p>"],
      ["**Note:**text **(a)** and *x*.", "<p>**Note:**text <strong>(a)</strong> and <em>x</em>.</p>"],
      ["a `b*c*` ``d`e`` `f", "<p>a <code>b*c*</code> <code>d`e</code> `f</p>"],
      ["\\*a\\* \\q \\", "<p>*a* \\q \\</p>"],
      ["```py\nx = 1\n\n  y\n```\nend", code("py", "x = <span class=\"number\">1</span>\n\n  y") + "<p>end</p>"],
      ["````\n```\n````", code("text", "```")],
      ["```\nopen", code("text", "open")],
      ["- a\n- b\n  - c\n    - d\n- e", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p><ul><li><p>d</p></li></ul></li></ul></li>" +
        "<li><p>e</p></li></ul>"],
      ["3. x\n4. y\n\n   more\n\nafter", '<ol start="3"><li><p>x</p></li><li><p>y</p><p>more</p></li></ol><p>after</p>'],
      ["1) a\n   ```\n   code\n     in\n   ```", '<ol start="1"><li><p>a</p>' + code("text", "code\n  in") + "</li></ol>"],
      ["It was\n1986. A year", "<p>It was\n1986. A year</p>"],
      ["* a\n\n* b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
      ["> q\n> r\nlazy\n\n> > s", "<blockquote><p>q\nr\nlazy</p></blockquote><blockquote><blockquote><p>s</p></blockquote></blockquote>"],
      ["a\n\n---\n* * *\n___", "<p>a</p><hr><hr><hr>"],
      ["| a | b |\n|---|:-:|\n| 1 | `x\\|y` |\n| 2 |\n\nend", '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>' +
        "<thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>x|y</code></td></tr>" +
        "<tr><td>2</td></tr></tbody></table></div><p>end</p>"],
      ["a | b\n--- no", "<p>a | b\n--- no</p>"],
      ["[x](https://e.org/a_b_c \"t\") y", `<p>${host("https://e.org/a_b_c", "x", "e.org")} y</p>`],
      ["[*x*](https://e.org)", `<p>${host("https://e.org/", "<em>x</em>", "e.org")}</p>`],
      ["[https://bank.org](https://evil.org)", `<p>${host("https://evil.org/", "https://bank.org", "evil.org")}</p>`],
      ["see https://e.org/a_b(c), or (https://e.org/d).", `<p>see ${a("https://e.org/a_b(c)", "https://e.org/a_b(c)")}, or ` +
        `(${a("https://e.org/d", "https://e.org/d")}).</p>`],
      ["<https://e.org/?a=1> <b>", `<p>${a("https://e.org/?a=1", "https://e.org/?a=1")} &lt;b&gt;</p>`],
      ["[m](mailto:a@e.org)", `<p>${host("mailto:a@e.org", "m", "a@e.org")}</p>`],
      ["[x](javascript:alert(1)) [y](/props) [z](data:text/html,x)", "<p>[x](javascript:alert(1)) [y](/props) [z](data:text/html,x)</p>"],
      ["![alt](https://e.org/i.png)", `<p><span>Image: alt (${a("https://e.org/i.png", "https://e.org/i.png")})</span></p>`],
      ["<script>alert(1)</script>&amp;", "<p>&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;</p>"],
      ["a\r\nb\r\n", "<p>a\nb</p>"],
      ["", ""],
      [">".repeat(100) + " x", "<blockquote>".repeat(16) + "<p>" + "&gt;".repeat(84) + " x</p>" + "</blockquote>".repeat(16)],
    ];
    for (const [text, wantedHtml] of expected) assert.equal(await html(text), wantedHtml, text);
  },

  async markdownInPieces() {
    const tab = await open();
    const different = await tab.page.evaluate((texts) => {
      const whole = (pieces) => {
        const root = document.createElement("div");
        const markdown = new Markdown(root);
        for (const piece of pieces) {
          markdown.feed(piece);
          markdown.render();
        }
        markdown.end();
        return root.innerHTML;
      };
      const wrong = [];
      for (const text of texts) {
        const wantedHtml = whole([text]);
        for (let i = 1; i < text.length; i++)
          if (whole([text.slice(0, i), text.slice(i)]) !== wantedHtml) wrong.push([text, i]);
        if (whole([...text]) !== wantedHtml) wrong.push([text, "each"]);
      }
      return wrong.slice(0, 5);
    }, [ALL_KINDS, "- a\n- b\n\n  c\n1. x\n2. y\n\n# h #\n> q\nlazy\n\n```c\nint x;\n```\n| a | b |\n|--|--|\n| 1 | 2 |\ntext | x\n",
      "***a** b*\n---\n- - x\n* * *\n+ y\n12. z\n~~~\n``` x\n~~~\n#\n# #\n| a |\n|-\n", "a|b\n-|-\n1|2\n\nc|d\nno table\n|-|-|\n"]);
    assert.deepEqual(different, []);
  },

  async markdownTakesLinearTime() {
    const tab = await open();
    const units = ["*", "_", "**a ", "[", "](", "[](", "![](", "[a](<", "`", "``a", "` ``", "~~", "~~a ", "\\", "<", "<https://", "https://",
      "http://a(", "a_", "*a_", "> ", "- ", "1. ", "#", "# ", "|", "a|b\n", "|-", "\n|-|\n", "```\n", "- - ", " ", "\n\n", "é", "[a](b \"",
      "*a **b _c ~~d "];
    const slow = await tab.page.evaluate((all) => {
      const time = (unit, n) => {
        const text = unit.repeat(n / unit.length);
        const from = performance.now();
        const markdown = new Markdown(document.createElement("div"));
        for (let i = 0; i < text.length; i += 512) {
          markdown.feed(text.slice(i, i + 512));
          markdown.render();
        }
        markdown.end();
        return performance.now() - from;
      };
      const out = [];
      for (const unit of all) {
        time(unit, 5000);
        // The best of two: other programs share the machine.
        const small = Math.min(time(unit, 20000), time(unit, 20000));
        const large = Math.min(time(unit, 160000), time(unit, 160000));
        if (large > 24 * (small + 10) || large > 1500) out.push([unit, small, large]);
      }
      return out;
    }, units);
    assert.deepEqual(slow, [], "eight times the text takes about eight times the time, not sixty-four");
  },

  async streamInPieces() {
    const tab = await open();
    const different = await tab.page.evaluate(() => {
      const text = ": comment\r\n\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\n: c\n\rdata: é\r\rdata: [DONE]\n\n";
      const bytes = new TextEncoder().encode(text);
      const all = (pieces) => {
        const events = eventReader();
        const decoder = new TextDecoder();
        return JSON.stringify(pieces.flatMap((piece) => events(decoder.decode(piece, { stream: true }))));
      };
      const wrong = [];
      for (let i = 0; i <= bytes.length; i++)
        for (let k = i; k <= bytes.length; k++) {
          const found = all([bytes.slice(0, i), bytes.slice(i, k), bytes.slice(k)]);
          if (found !== JSON.stringify(['{"a":1}', "two\nlines", "é", "[DONE]"])) wrong.push([i, k, found]);
        }
      return wrong.slice(0, 3);
    });
    assert.deepEqual(different, []);
    const proxy = await proxied();
    const other = await open(proxy.url);
    const bytes = Buffer.from(": c\r\n\r\n" + eventsOf(["Grüße ", "и ", "世界 🔥"]).join("").replaceAll("\n", "\r\n"));
    proxy.streams([...bytes].map((b) => Buffer.from([b])));
    await other.ask("hello");
    await other.answered();
    assert.equal(await other.lastText(), "Grüße и 世界 🔥");
    proxy.streams(eventsOf(["no end"]).slice(0, -1));
    await other.ask("again");
    await other.answered();
    assert.equal(await other.lastText(), "no end", "a finish reason without [DONE] is an end");
  },

  // ---- hostile text -----------------------------------------------------------------------------

  async hostileStrings() {
    assert.equal(new Set(HOSTILE).size, 40);
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const inert = async (where) => {
      await tab.page.mouse.move(300, 300);
      const found = await tab.page.evaluate(() => ({
        hacked: window.hacked ?? null,
        nodes: [...document.querySelectorAll("#log *, #items *")].filter((n) => !ALLOWED.has(n.localName)).map((n) => n.outerHTML),
        links: [...document.querySelectorAll("a[href]")].map((n) => n.href).filter((h) => !/^(https?|mailto):/.test(h)),
        bare: [...document.querySelectorAll("#log a[href]")].filter((n) => n.rel !== "noopener noreferrer").length,
        handlers: [...document.querySelectorAll("*")].flatMap((n) => [...n.attributes]).filter((at) => /^on|^style$|^src/.test(at.name)).length,
      }));
      assert.deepEqual(found, { hacked: null, nodes: [], links: [], bare: 0, handlers: 0 }, where);
      assert.deepEqual(tab.faults, [], where);
    };
    await tab.page.evaluate(() => {
      window.ALLOWED = new Set("article h2 h3 h4 h5 h6 div p span bdi a em strong del code pre button ul ol li blockquote hr table thead tbody tr th td details summary small label br progress".split(" "));
    });
    for (const text of HOSTILE) {
      proxy.says([...text.match(/[^]{1,7}/g)]);
      await tab.ask(text);
      await tab.answered();
      assert.equal((await tab.texts()).at(-2), text.trim(), "a question is shown as it was typed");
      await inert(`from the model: ${text}`);
    }
    const title = HOSTILE.join("").slice(0, 150);
    await tab.page.evaluate(() => { window.hacked = null; });
    await importText(tab, JSON.stringify(exported(HOSTILE.flatMap((text) => [
      { role: "user", content: text, files: [{ name: text, text }] },
      { role: "assistant", content: text, reasoning_content: text, state: text, problem: text,
        tool_calls: [{ function: { name: text, arguments: text } }] }]), { title, system: HOSTILE[0] })));
    await sleep(300);
    await openNewest(tab);
    await tab.until(() => document.querySelectorAll("article").length === 80);
    await tab.page.$$eval("details", (all) => all.forEach((d) => { d.open = true; }));
    await inert("from an import");
    proxy.refuses("/v1/chat/completions", 500, { error: { message: HOSTILE.join(" "), code: HOSTILE[1] } });
    await tab.ask("x");
    await tab.answered("error");
    await inert("from an error");
    proxy.refuses("/v1/models", 200, { data: HOSTILE.map((id) => ({ id })) });
    await tab.page.reload();
    await tab.until(() => document.querySelectorAll("#model option").length === 40);
    assert.deepEqual(tab.faults, []);
  },

  async hostileImports() {
    const tab = await open();
    const good = exported([{ role: "user", content: "kept" }]);
    const bad = ["", "{", "null", "[]", "{}", '"x"', JSON.stringify({ ...good, version: 2 }), JSON.stringify({ ...good, format: "x" }),
      JSON.stringify({ ...good, conversations: {} }), JSON.stringify({ ...good, conversations: [null] }),
      JSON.stringify({ ...good, conversations: [...good.conversations, { messages: 1 }] }),
      ...[{ role: "system", content: "x" }, { role: "__proto__", content: "x" }, { role: "user", content: 1 },
        { role: "user", content: {} }, [], "x", { role: "user", content: "x", files: [{ name: 1, text: "" }] },
        { role: "assistant", content: "", tool_calls: [{ function: { name: "x", arguments: {} } }] },
        { role: "assistant", content: "", tool_calls: "x" }, { role: "assistant", content: "", reasoning_content: ["x"] },
      ].map((m) => JSON.stringify(exported([m]))),
      JSON.stringify(exported([], { title: 1 })), JSON.stringify(exported([], { system: [] })),
      JSON.stringify(exported(Array(50001).fill({ role: "user", content: "" }))), "x".repeat((32 << 20) + 1)];
    for (const text of bad) {
      await tab.page.$eval("#error", (node) => { node.textContent = ""; });
      await importText(tab, text);
      await tab.until(() => document.querySelector("#error").textContent.startsWith("Nothing was imported: "));
    }
    assert.equal(await tab.page.evaluate(() => Object.keys(localStorage).filter((k) => k.includes(":c:")).length), 0);
    await importText(tab, '{"__proto__":{"hacked":1},' + JSON.stringify(good).slice(1));
    await tab.until(() => Object.keys(localStorage).filter((k) => k.includes(":c:")).length === 1);
    assert.equal(await tab.page.evaluate(() => ({}).hacked ?? null), null);
  },

  // ---- errors -----------------------------------------------------------------------------------

  async everyError() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const chat = "/v1/chat/completions";
    const problem = () => tab.lastArticle(".problem p");
    const fails = async (pattern, question = "Does it fail?") => {
      await tab.ask(question);
      await tab.answered("error");
      assert.match(await problem(), pattern);
      assert.ok(pattern.test(await tab.page.$eval("#error", (e) => e.textContent)) || /wait/.test(pattern.source), "said as an alert");
      assert.ok((await tab.texts()).includes(question), "the question is still there");
      assert.equal(await tab.page.$eval("#prompt", (box) => box.value), "");
    };
    const works = async () => {
      proxy.rules = {};
      await tab.page.$$eval("[data-act=again]", (all) => all.at(-1).click());
      await tab.until(() => document.querySelector("#error").textContent === "");
      await tab.answered();
      assert.equal(await tab.lastArticle(".problem"), null);
    };
    proxy.rules[chat] = async (req, res) => { res.destroy(); return true; };
    await fails(/^The server cannot be reached\.$/);
    await works();
    proxy.says(["half an ", "answer"], { done: false, cut: true, delay: 30 });
    await fails(/^The connection was lost before the answer was complete\.$/);
    assert.equal(await tab.lastText(), "half an answer", "what came is kept");
    await works();
    proxy.says(["half"], { done: false });
    await fails(/^The connection was lost/);
    await works();
    proxy.streams(["data: {not json}\n\n"]);
    await fails(/^The server sent an invalid answer\.$/);
    await works();
    proxy.streams([...eventsOf(["begun"], { done: false }), 'event: error\ndata: {"error":{"message":"The engine stopped.","code":"internal_error"}}\n\n']);
    await fails(/^The engine stopped\.$/);
    assert.equal(await tab.lastText(), "begun");
    await works();
    proxy.refuses(chat, 404, { error: { message: "The model 'x' does not exist; this server serves 'y'.", code: "model_not_found" } });
    await fails(/^The model 'x' does not exist/);
    await works();
    for (const [status, headers, seconds] of [[429, { "Retry-After": "2" }, 2], [503, { "retry-after-ms": "1500", "Retry-After": "2" }, 2]]) {
      proxy.refuses(chat, status, { error: { message: "The queue is full.", code: "queue_full" } }, headers);
      await fails(new RegExp(`^The queue is full\\. The server asks to wait ${seconds} seconds\\.$`));
      await tab.until(() => [...document.querySelectorAll(".problem p")].at(-1).textContent.endsWith("wait 1 second."));
      await tab.until(() => [...document.querySelectorAll(".problem p")].at(-1).textContent.endsWith("You can try again now."));
      await works();
    }
    proxy.rules[chat] = async (req, res) => {
      res.writeHead(502, { "Content-Type": "text/html" });
      res.end("<html>Bad gateway</html>");
      return true;
    };
    await fails(/^The server answered 502/);
    await works();
    proxy.refuses(chat, 503, { error: { message: "The model is still loading.", code: "model_loading" } }, { "Retry-After": "1" });
    proxy.refuses("/readyz", 503, { status: "pulling", percent: 41 }, {}, 2);
    await fails(/^The model is still loading\./);
    await tab.until(() => document.querySelector("#notice").textContent === "The model is being fetched: 41 %.");
    await tab.until(() => document.querySelector("#notice").hidden);
    await works();
  },

  async contextLength() {
    const tab = await open();
    const long = "Tell me a story about a fox. ".repeat(400).trim();
    await tab.ask(long);
    await tab.answered("error");
    note(`context length: ${await tab.lastArticle(".problem p")}`);
    assert.match(await tab.lastArticle(".problem p"), /context/);
    await tab.page.click("[data-act=fresh]");
    await tab.until(() => document.querySelectorAll("article").length === 0);
    assert.equal(await tab.page.$eval("#prompt", (box) => box.value), long, "the text goes along");
  },

  async loading() {
    const proxy = await proxied();
    let percent = 0;
    proxy.rules["/readyz"] = async (req, res) => {
      if (percent > 80) return false;
      percent += 40;
      res.writeHead(503, { "Content-Type": "application/json" });
      res.end(JSON.stringify({ status: "pulling", percent }));
      return true;
    };
    const tab = await open(proxy.url, { ready: false });
    await tab.until(() => document.querySelector("#notice").textContent === "The model is being fetched: 40 %.");
    await tab.page.keyboard.type("typed while it loads");
    await tab.until(() => document.querySelector("#notice").textContent === "The model is being fetched: 80 %.");
    await tab.until(() => document.querySelector("#model").value && document.querySelector("#notice").hidden);
    assert.equal(await tab.page.$eval("#prompt", (box) => box.value), "typed while it loads");
  },

  async apiKey() {
    const url = process.env.HEARTH_KEYED_URL;
    const key = process.env.HEARTH_KEY;
    assert.ok(url, "needs HEARTH_KEYED_URL");
    const proxy = await proxied("/some/where", url);
    const tab = await open(`${proxy.url}/`, { ready: false });
    await tab.until(() => !document.querySelector("#keyform").hidden);
    await tab.focusReaches("key"); // a key is needed first
    await tab.ask("What is 2+2?");
    await tab.answered("error");
    await tab.focusReaches("key");
    await tab.page.keyboard.type("wrong");
    await tab.page.keyboard.press("Enter");
    await tab.until(() => document.querySelector("#notice").textContent === "The API key is not valid.");
    await tab.answered("error");
    await tab.page.focus("#key");
    await tab.page.keyboard.type(key);
    await tab.page.keyboard.press("Enter");
    await tab.answered();
    assert.match(await tab.lastText(), /4/, "the question is asked again with the key");
    await tab.until(() => document.querySelector("#keyform").hidden && document.querySelector("#model").value);
    const kept = await tab.page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie + location.href);
    assert.ok(!kept.includes(key), "the key is not on disk");
    assert.ok(proxy.seen.every((r) => !r.url.includes(key) && !r.body.includes(key)));
    await tab.page.reload();
    await tab.until(() => document.querySelector("#model").value);
    assert.ok(await tab.page.$eval("#keyform", (form) => form.hidden), "the tab knows it after a reload");
    const other = await open(`${proxy.url}/`, { context: tab.context, ready: false });
    await other.until(() => !document.querySelector("#keyform").hidden);
  },

  async pathPrefix() {
    const proxy = await proxied("/hearth");
    for (const url of [`${proxy.url}/`, proxy.url]) {
      const tab = await open(url);
      await tab.ask("What is 2+2?");
      await tab.answered();
      assert.match(await tab.lastText(), /4/);
    }
    assert.ok(proxy.seen.every((r) => !r.url.startsWith("h")), "all requests are below the prefix");
  },

  // ---- conversations ----------------------------------------------------------------------------

  async editAndRegenerate() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const bodies = () => proxy.seen.filter((r) => r.method === "POST").map((r) => JSON.parse(r.body).messages.map((m) => m.content));
    proxy.says(["answer one"]);
    await tab.ask("question one");
    await tab.answered();
    proxy.says(["answer two"]);
    await tab.ask("question two");
    await tab.answered();
    proxy.says(["answer two again"]);
    await tab.page.$$eval("[data-act=again]", (all) => all.at(-1).click());
    await tab.until(() => [...document.querySelectorAll(".text")].at(-1).textContent === "answer two again");
    await tab.answered();
    assert.deepEqual(bodies().at(-1), ["question one", "answer one", "question two"]);
    await tab.page.focus("#prompt");
    await tab.page.keyboard.press("ArrowUp");
    assert.equal(await tab.page.$eval("#prompt", (box) => box.value), "question two");
    await tab.page.keyboard.press("Escape");
    assert.equal(await tab.page.$eval("#prompt", (box) => box.value), "");
    await tab.page.keyboard.press("ArrowUp");
    await tab.page.keyboard.press("End");
    await tab.page.keyboard.type(", edited");
    proxy.says(["answer three"]);
    await tab.page.keyboard.press("Enter");
    await tab.until(() => [...document.querySelectorAll(".text")].at(-1).textContent === "answer three");
    await tab.answered();
    assert.deepEqual(await tab.texts(), ["question one", "answer one", "question two, edited", "answer three"]);
    await tab.page.keyboard.type("a draft");
    await tab.page.click("article [data-act=edit]");
    await tab.page.keyboard.type("New ");
    proxy.says(["answer four"]);
    await tab.page.click("#send");
    await tab.until(() => [...document.querySelectorAll(".text")].at(-1).textContent === "answer four");
    await tab.answered();
    assert.deepEqual(bodies().at(-1).length, 1, "what followed is not sent");
    assert.equal(await tab.page.$eval("#prompt", (box) => box.value), "a draft", "the draft comes back");
    await tab.page.click("#conversations");
    assert.equal(await tab.page.$$eval("#items li", (all) => all.length), 2, "the conversation before the edit is kept");
    await tab.page.click("#items li:nth-child(2) .open");
    await tab.until(() => document.querySelectorAll("article").length === 4);
    assert.deepEqual(await tab.texts(), ["question one", "answer one", "question two, edited", "answer three"]);
  },

  async listRenameDelete() {
    const tab = await open();
    for (const text of ["What is 1+1?", "What is 2+2?", "What is 3+3?"]) {
      await tab.page.click("#new");
      await tab.ask(text);
      await tab.answered();
    }
    const titles = () => tab.page.$$eval("#items bdi", (all) => all.map((n) => n.textContent));
    await tab.page.click("#conversations");
    assert.deepEqual(await titles(), ["What is 3+3?", "What is 2+2?", "What is 1+1?"]);
    await tab.page.click("#items li:nth-child(2) [data-act=rename]");
    await tab.page.keyboard.type("Sums");
    await tab.page.keyboard.press("Enter");
    await tab.until(() => [...document.querySelectorAll("#items bdi")].some((n) => n.textContent === "Sums"));
    assert.equal(await tab.page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Rename Sums");
    await tab.page.click("#items li:nth-child(3) [data-act=delete]");
    assert.equal((await titles()).length, 3, "the first click only asks");
    await tab.page.click("#items li:nth-child(3) [data-act=delete]");
    await tab.until(() => document.querySelectorAll("#items li").length === 2);
    await tab.page.keyboard.press("Escape");
    await tab.page.waitForSelector("#list[open]", { hidden: true });
    await tab.focusReaches("conversations"); // focus goes back to the opener
    await tab.page.click("#conversations");
    await tab.page.click("#clear");
    await tab.page.click("#clear");
    await tab.until(() => document.querySelectorAll("#items li").length === 0);
    assert.deepEqual(await tab.page.evaluate(() => Object.keys(localStorage).filter((k) => /:[cmd]:/.test(k))), []);
    assert.equal(await tab.page.$$eval("article", (all) => all.length), 0);
  },

  async deleteWhileAnswering() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    proxy.says(words(500), { delay: 10 });
    await tab.ask("count");
    await tab.until(() => document.querySelector("article[data-state=streaming]"));
    await tab.page.click("#conversations");
    await tab.page.click("#items [data-act=delete]");
    await tab.page.click("#items [data-act=delete]");
    await sleep(1500);
    assert.deepEqual(await tab.page.evaluate(() => Object.keys(localStorage).filter((k) => /:[cm]:/.test(k))), []);
  },

  async exportAndImport() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    proxy.says(["**bold** answer"]);
    await tab.ask("question");
    await tab.answered();
    const text = await tab.page.evaluate(() => exportAll());
    const file = JSON.parse(text);
    assert.deepEqual([file.format, file.version, file.conversations.length], ["hearth-conversations", 1, 1]);
    assert.deepEqual(file.conversations[0].messages, [{ role: "user", content: "question" },
      { role: "assistant", content: "**bold** answer", state: "done", tokens: 1 }]);
    const client = await tab.page.createCDPSession();
    await client.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder, browserContextId: tab.context.id });
    await tab.page.click("#conversations");
    await tab.page.click("#export");
    for (let i = 0; i < 100 && !fs.existsSync(path.join(folder, "hearth-conversations.json")); i++) await sleep(50);
    assert.equal(fs.readFileSync(path.join(folder, "hearth-conversations.json"), "utf8"), text);
    const other = await open(proxy.url);
    await importText(other, text);
    await other.until(() => Object.keys(localStorage).some((k) => k.includes(":c:")));
    await openNewest(other);
    await other.until(() => document.querySelectorAll("article").length === 2);
    assert.deepEqual(await other.texts(), ["question", "bold answer"]);
    assert.deepEqual(JSON.parse(await other.page.evaluate(() => exportAll())).conversations[0].messages, file.conversations[0].messages);
  },

  async twoTabs() {
    const proxy = await proxied();
    const first = await open(proxy.url);
    proxy.says(["one"]);
    await first.ask("first");
    await first.answered();
    const second = await open(proxy.url, { context: first.context });
    await second.until(() => document.querySelectorAll("article").length === 2);
    proxy.says(["two"]);
    await second.ask("second");
    await second.answered();
    await first.until(() => document.querySelectorAll("article").length === 4);
    assert.deepEqual(await first.texts(), ["first", "one", "second", "two"], "an idle tab follows");
    // Both answer at once: nothing may be lost.
    proxy.says(words(60), { delay: 40 });
    await first.page.bringToFront();
    await first.ask("from the first");
    await first.until(() => document.querySelector("#stop:not([hidden])"));
    await second.page.bringToFront();
    await second.ask("from the second");
    await sleep(500);
    await first.page.bringToFront();
    await first.answered();
    await second.page.bringToFront();
    await second.answered();
    const kept = await first.page.evaluate(() => Object.entries({ ...localStorage }).filter(([k]) => k.includes(":c:")).map(([, v]) => v).join());
    for (const text of ["from the first", "from the second", "first", "two"]) assert.ok(kept.includes(text), text);
    assert.equal(kept.split("word59").length - 1, 2, "both answers are kept whole");
  },

  async doNotKeep() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    await tab.page.click("#settings");
    await tab.page.click("#forget");
    await tab.page.keyboard.press("Escape");
    await tab.page.waitForSelector("#panel[open]", { hidden: true });
    await tab.focusReaches("settings");
    proxy.says(["a secret answer"]);
    await tab.ask("a secret question");
    await tab.answered();
    await tab.page.keyboard.type("a secret draft");
    await tab.page.click("#new");
    await tab.page.click("#conversations");
    assert.equal(await tab.page.$$eval("#items li", (all) => all.length), 1, "the page itself remembers");
    assert.doesNotMatch(await tab.page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage })), /secret/);
    await tab.page.reload();
    await tab.until(() => document.querySelector("#model").value);
    assert.equal(await tab.page.$$eval("article", (all) => all.length), 0);
    await tab.page.click("#settings");
    assert.ok(await tab.page.$eval("#forget", (box) => box.checked), "the switch itself is kept");
  },

  async storageFullOrOff() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    await tab.page.evaluate(() => {
      for (let n = 1 << 22; n > 0; n >>= 1)
        try {
          for (;;) localStorage.setItem("fill" + Math.random(), "x".repeat(n));
        } catch { /* the next size */ }
    });
    proxy.says(["an answer"]);
    await tab.ask("a question");
    await tab.answered();
    assert.match(await tab.page.$eval("#error", (e) => e.textContent), /^The browser's storage is full/);
    assert.deepEqual(await tab.texts(), ["a question", "an answer"]);
    await tab.page.click("#conversations");
    assert.equal(await tab.page.$$eval("#items li", (all) => all.length), 1);
    const off = await browser.createBrowserContext();
    const page = await off.newPage();
    await page.evaluateOnNewDocument(() => {
      for (const name of ["localStorage", "sessionStorage"])
        Object.defineProperty(window, name, { get() { throw new Error("off"); } });
    });
    await page.goto(proxy.url);
    await page.waitForFunction(() => document.querySelector("#model").value);
    await page.focus("#prompt");
    await page.keyboard.type("a question");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => [...document.querySelectorAll(".text")].at(-1)?.textContent === "an answer");
    await off.close();
  },

  async settingsReachTheRequest() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const last = () => JSON.parse(proxy.seen.filter((r) => r.method === "POST").at(-1).body);
    proxy.says(["x"]);
    await tab.ask("one");
    await tab.answered();
    for (const key of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) assert.ok(!(key in last()), key);
    await tab.page.click("#settings");
    for (const [id, value] of [["system", "Be brief."], ["temperature", "0"], ["top_p", "0.9"], ["top_k", "5"],
      ["min_p", "0.1"], ["max_tokens", "12"], ["seed", "7"]]) {
      await tab.page.focus(`#${id}`);
      await tab.page.keyboard.type(value);
    }
    await tab.page.click("#panel [data-act=close]");
    await tab.ask("two");
    await tab.until(() => document.querySelectorAll("article").length === 4);
    await tab.answered();
    const { temperature, top_p, top_k, min_p, max_tokens, seed, messages, model, return_progress } = last();
    assert.deepEqual({ temperature, top_p, top_k, min_p, max_tokens, seed, return_progress, first: messages[0] },
      { temperature: 0, top_p: 0.9, top_k: 5, min_p: 0.1, max_tokens: 12, seed: 7, return_progress: true, first: { role: "system", content: "Be brief." } });
    assert.equal(model, await tab.page.$eval("#model", (m) => m.value));
    await tab.page.reload();
    await tab.until(() => document.querySelector("#model").value);
    await tab.page.click("#settings");
    assert.deepEqual(await tab.page.$$eval("#panel .field", (all) => all.map((f) => f.value)), ["Be brief.", "0", "0.9", "5", "0.1", "12", "7"]);
    await tab.page.$eval("#temperature", (f) => { f.value = ""; });
    await tab.page.focus("#temperature");
    await tab.page.keyboard.type("500");
    await tab.page.keyboard.press("Escape");
    await tab.ask("three");
    await tab.until(() => document.querySelectorAll("article").length === 6);
    assert.equal(last().temperature, 0, "a value out of range is not taken");
  },

  async files() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const write = (name, data) => {
      fs.writeFileSync(path.join(folder, name), data);
      return path.join(folder, name);
    };
    const picker = await tab.page.$("#picker");
    await picker.uploadFile(write("a.txt", "text with ``` in it\n"), write("b <i>.c", "int x;"));
    await tab.until(() => document.querySelectorAll("#files li").length === 2);
    await picker.uploadFile(write("big.txt", "x".repeat((256 << 10) + 1)));
    await tab.until(() => /^big.txt has 262,145 bytes, at most 262,144 bytes/.test(document.querySelector("#error").textContent));
    await picker.uploadFile(write("image.png", Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 1])));
    await tab.until(() => document.querySelector("#error").textContent === "image.png is not a text file.");
    await tab.page.evaluate(() => {
      const data = new DataTransfer();
      data.items.add(new File(["dropped"], "c.md"));
      document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    });
    await tab.until(() => document.querySelectorAll("#files li").length === 3);
    await tab.page.click("#files li:nth-child(2) button");
    proxy.says(["read"]);
    await tab.ask("What is in it?");
    await tab.answered();
    const sent = JSON.parse(proxy.seen.filter((r) => r.method === "POST").at(-1).body).messages;
    assert.deepEqual(sent, [{ role: "user", content: "What is in it?\n\na.txt:\n````\ntext with ``` in it\n````\n\nc.md:\n```\ndropped\n```" }]);
    assert.equal(await tab.page.$$eval("#files li", (all) => all.length), 0);
    await tab.page.reload();
    await tab.until(() => document.querySelectorAll("article details").length === 2);
    await tab.page.click("article summary");
    await tab.until(() => document.querySelector("article details pre").textContent === "text with ``` in it\n");
  },

  async copies() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    await tab.context.overridePermissions(tab.origin, ["clipboard-read", "clipboard-write", "clipboard-sanitized-write"]);
    proxy.says(["Some **code**:\n\n```c\nint x;\n  y\n```\n"]);
    await tab.ask("code");
    await tab.answered();
    const clip = () => tab.page.evaluate(() => navigator.clipboard.readText());
    await tab.page.click("[data-act=copy]");
    await tab.until(async () => await navigator.clipboard.readText() === "Some **code**:\n\n```c\nint x;\n  y\n```\n");
    await tab.page.click("[data-act=copy-code]");
    await sleep(200);
    assert.equal(await clip(), "int x;\n  y");
    // Plain http has no clipboard object.
    await tab.page.evaluate(() => navigator.clipboard.writeText("old"));
    await tab.page.evaluate(() => { navigator.clipboard.writeText = () => Promise.reject(new Error("no")); });
    await tab.page.click("[data-act=copy-code]");
    await sleep(300);
    assert.equal(await clip(), "int x;\n  y");
  },

  // ---- what is shown and said ---------------------------------------------------------------------

  async reasoningAndToolCalls() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const delta = (d, reason = null) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: d, finish_reason: reason }] })}\n\n`;
    proxy.streams([delta({ role: "assistant", content: "" }), delta({ reasoning_content: "Let me <b>think</b>. " }),
      delta({ reasoning_content: "Done." }), delta({ content: "It rains." }),
      delta({ tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "weather", arguments: "{\"city\":" } }] }),
      delta({ tool_calls: [{ index: 0, function: { arguments: "\"Oslo\"}" } }] }),
      delta({ tool_calls: [{ index: 1, function: { name: "time", arguments: "not json" } }] }),
      delta({}, "tool_calls"), "data: [DONE]\n\n"], { delay: 30 });
    await tab.ask("weather?");
    await tab.answered();
    assert.equal(await tab.lastText(), "It rains.");
    assert.ok(await tab.page.$eval("article:last-child details", (d) => !d.open), "reasoning is folded");
    assert.equal(await tab.lastArticle("details .plain"), "Let me <b>think</b>. Done.");
    assert.deepEqual(await tab.page.$$eval("article:last-child .code", (all) => all.map((n) => [n.querySelector(".bar").textContent, n.querySelector("code").textContent])),
      [["Tool call: weather", '{\n  "city": "Oslo"\n}'], ["Tool call: time", "not json"]]);
    proxy.says(['{"a": ', "[1, 2]}"]);
    await tab.ask("json");
    await tab.until(() => document.querySelectorAll("article").length === 4);
    await tab.answered();
    assert.equal(await tab.lastArticle("code"), '{"a": [1, 2]}');
    await tab.page.reload();
    await tab.until(() => document.querySelectorAll("article").length === 4);
    assert.equal(await tab.page.$$eval("article .code", (all) => all.length), 3);
    await shot(tab, "tools");
  },

  async prefillProgress() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const step = (processed) => `data: ${JSON.stringify({ choices: [], prompt_progress: { total: 200, cache: 0, processed, time_ms: 1 } })}\n\n`;
    let go = () => {};
    proxy.rules["/v1/chat/completions"] = async (req, res) => {
      res.writeHead(200, { "Content-Type": "text/event-stream" });
      res.write(step(83));
      await new Promise((done) => { go = done; });
      res.end(eventsOf(["read"], { more: [{ choices: [], prompt_progress: { total: 200, cache: 0, processed: 200 } }] }).join(""));
      return true;
    };
    await tab.ask("long");
    await tab.until(() => document.querySelector(".waiting")?.textContent === "Reading the prompt: 41 %");
    assert.equal(await tab.page.$eval("progress", (p) => p.position), 0.41);
    assert.equal(await tab.page.$eval("article:last-child", (a) => a.dataset.state), "waiting");
    go();
    await tab.answered();
    assert.equal(await tab.page.$("progress"), null);
    proxy.rules = {};
    await tab.ask("What is 2+2?");
    await tab.until(() => document.querySelectorAll("article").length === 4);
    await tab.answered();
    assert.match(await tab.lastArticle(".actions span"), /^\d+ tokens · [\d.,]+ tokens\/s$/);
  },

  async statusSaysSentences() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    await tab.page.evaluate(() => {
      window.said = [];
      new MutationObserver(() => window.said.push([performance.now(), document.querySelector("#status").textContent]))
        .observe(document.querySelector("#status"), { childList: true, characterData: true, subtree: true });
    });
    const sentences = Array.from({ length: 60 }, (_, i) => `Sentence **${i}** ends here. `);
    const pieces = [...sentences, "\n\n```c\nint hidden;\n```\n", "And the rest"].flatMap((s) => s.match(/[^]{1,6}/g));
    proxy.says(pieces, { delay: 15 });
    await tab.ask("go");
    await tab.answered();
    await tab.until((n) => document.querySelector("#status").textContent === `Answer complete, ${n} tokens`, pieces.length);
    const said = await tab.page.evaluate(() => window.said);
    for (let i = 1; i < said.length; i++) assert.ok(said[i][0] - said[i - 1][0] >= 1950, `${said[i][0] - said[i - 1][0]} ms between two`);
    const texts = said.map(([, text]) => text);
    assert.ok(texts.length >= 4, texts.join(" / "));
    for (const text of texts.slice(1, -2)) assert.match(text, /^Sentence \d+ ends here\.( Sentence \d+ ends here\.)*$/);
    assert.equal((texts.join(" ").match(/Sentence/g)).length, 60, "nothing is left out");
    assert.doesNotMatch(texts.join(" "), /hidden|\*/);
    assert.match(texts.at(-2), /And the rest$/);
    assert.equal(await tab.page.$eval("#log", (log) => log.getAttribute("aria-live")), "off");
  },

  async scrollingFollows() {
    const proxy = await proxied();
    const tab = await open(proxy.url, { height: 500 });
    proxy.says(words(3000).map((w, i) => (i % 40 === 39 ? `${w}\n\n` : w)), { delay: 3 });
    await tab.ask("go");
    const gap = () => tab.page.evaluate(() => {
      const page = document.scrollingElement;
      return page.scrollHeight - page.clientHeight - page.scrollTop;
    });
    await tab.until(() => document.scrollingElement.scrollTop > 300);
    for (let i = 0; i < 10; i++) {
      assert.ok(await gap() < 60, "follows");
      await sleep(50);
    }
    await tab.page.mouse.move(500, 200);
    await tab.page.mouse.wheel({ deltaY: -200 });
    await sleep(300);
    const top = await tab.page.evaluate(() => document.scrollingElement.scrollTop);
    await sleep(700);
    assert.equal(await tab.page.evaluate(() => document.scrollingElement.scrollTop), top, "stays where the reader is");
    await tab.page.keyboard.press("Tab");
    await tab.page.evaluate(() => { document.scrollingElement.scrollTop = 1e9; });
    await sleep(500);
    assert.ok(await gap() < 60, "follows again from the end");
    await tab.page.keyboard.press("Escape");
    await tab.answered("stopped");
  },

  async tabOrderAndNames() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    await tab.page.focus("#skip");
    const order = ["skip"];
    for (let i = 0; i < 11; i++) {
      await tab.page.keyboard.press("Tab");
      order.push(await tab.focused());
      const ring = await tab.page.evaluate(() => parseFloat(getComputedStyle(document.activeElement).outlineWidth));
      assert.ok(ring >= 2, `${order.at(-1)}: outline of ${ring} px`);
    }
    assert.deepEqual(order, ["skip", "model", "new", "conversations", "settings", "", "", "", "log", "attach", "prompt", "send"]);
    const tree = JSON.stringify(await tab.page.accessibility.snapshot({ interestingOnly: false }));
    for (const name of ["Message", "Send", "New conversation", "Model", "Settings", "Conversations", "Conversation"])
      assert.ok(tree.includes(`"name":"${name}"`), name);
    assert.deepEqual(await tab.page.evaluate(() => [document.documentElement.lang, document.querySelectorAll("h1").length,
      ...["header", "main", "footer"].map((name) => document.querySelectorAll(`body > ${name}`).length),
      document.querySelector("#error").textContent]), ["en", 1, 1, 1, 1, ""]);
    await tab.page.focus("#skip");
    await tab.page.keyboard.press("Enter");
    await tab.focusReaches("prompt");
    proxy.says([ALL_KINDS]);
    await tab.ask("all");
    await tab.answered();
    const small = await tab.page.evaluate(() => [...document.querySelectorAll("button, select, textarea, input, summary")]
      .filter((n) => n.checkVisibility()).map((n) => [n.id || n.textContent, n.getBoundingClientRect()])
      .filter(([, r]) => r.width < 24 || r.height < 24).map(([name, r]) => `${name} ${r.width} x ${r.height}`));
    assert.deepEqual(small, [], "targets of at least 24 x 24");
  },

  async inputMethods() {
    const tab = await open();
    await tab.page.focus("#prompt");
    await tab.page.keyboard.type("に");
    const client = await tab.page.createCDPSession();
    await client.send("Input.imeSetComposition", { text: "ほん", selectionStart: 2, selectionEnd: 2 });
    await tab.page.evaluate(() => {
      for (const init of [{ isComposing: true, key: "Enter" }, { keyCode: 229, key: "Enter" }, { isComposing: true, key: "Escape" }])
        document.querySelector("#prompt").dispatchEvent(new KeyboardEvent("keydown", { ...init, bubbles: true, cancelable: true }));
    });
    assert.equal(await tab.page.$$eval("article", (all) => all.length), 0, "nothing is sent while composing");
    await client.send("Input.insertText", { text: "本" });
    assert.match(await tab.page.$eval("#prompt", (box) => box.value), /^に/);
  },

  async axeInThreeLooks() {
    const proxy = await proxied();
    for (const [name, options] of Object.entries(LOOKS)) {
      const tab = await open(proxy.url, options);
      const clean = async (where) => assert.deepEqual(await tab.axe(), [], `${name}: ${where}`);
      await clean("empty");
      proxy.says([ALL_KINDS]);
      await tab.ask("Show everything.");
      await tab.answered();
      proxy.refuses("/v1/chat/completions", 429, { error: { message: "The queue is full." } }, { "Retry-After": "3" });
      await tab.ask("Once more.");
      await tab.answered("error");
      await clean("code, table and error");
      await shot(tab, `${name}-all`);
      await tab.page.keyboard.press("ArrowUp");
      await clean("editing");
      await tab.page.keyboard.press("Escape");
      for (const id of ["settings", "conversations"]) {
        await tab.page.click(`#${id}`);
        await clean(`${id} open`);
        await shot(tab, `${name}-${id}`);
        await tab.page.keyboard.press("Escape");
      }
      proxy.streams(eventsOf(["x"], { done: false, more: [{ choices: [], prompt_progress: { total: 9, processed: 3 } }] }).slice(0, 1), { delay: 5000 });
      await tab.page.click("article:last-child [data-act=again]");
      await tab.until(() => document.querySelector("progress"));
      await clean("reading the prompt");
      await tab.page.keyboard.press("Escape");
      await tab.answered("stopped");
      proxy.rules = {};
    }
  },

  async codeSideAndExamples() {
    const proxy = await proxied();
    const tab = await open(proxy.url, { width: 1400 });
    await tab.until(() => document.querySelector("#examples button"));
    const example = await tab.page.$eval("#examples button", (b) => b.textContent);
    await tab.page.click("#examples button");
    assert.deepEqual([await tab.focused(), await tab.page.$eval("#prompt", (box) => box.value)], ["prompt", example]);
    const code = "# don't \"count\"\ndef f(x):\n    return 'a # b' + str(0xff)  # last";
    const hostile = "/*".repeat(10000) + `"`.repeat(10001);
    proxy.says([`See <https://example.org/a_(b).> and $x$\n\n\`\`\`python\n${code}\n\`\`\`\n\n\`\`\`\n# plain\n\`\`\`\n\n\`\`\`c\n${hostile}\n\`\`\``]);
    await tab.ask("First question");
    await tab.answered();
    assert.match(await tab.lastText(), /See https:\/\/example\.org\/a_\(b\)\. and \$x\$/);
    assert.equal(await tab.page.$eval("article a", (a) => a.href), "https://example.org/a_(b).");
    const blocks = await tab.page.$$eval("pre code", (all) => all.map((n) => [n.textContent,
      [...n.querySelectorAll("span")].map((s) => `${s.className} ${s.textContent}`)]));
    assert.deepEqual(blocks[0], [code, ["comment # don't \"count\"", "word def", "word return", "string 'a # b'",
      "word str", "number 0xff", "comment # last"]]);
    assert.deepEqual(blocks.slice(1).map(([text, spans]) => [text, spans.length > 0]), [["# plain", false], [hostile, true]]);
    await tab.page.click("#new");
    await tab.ask("Second question");
    await tab.answered();
    const names = () => tab.page.$$eval("#recent .open", (all) => all.map((n) => n.querySelector("bdi").textContent +
      (n.getAttribute("aria-current") ? "*" : "")));
    assert.deepEqual(await names(), ["Second question*", "First question"]);
    await tab.page.click("#recent li:nth-child(2) .open");
    assert.deepEqual(await names(), ["Second question", "First question*"]);
    assert.ok((await tab.texts())[0].includes("First question"));
    assert.deepEqual(await tab.axe(), []);
    await tab.page.setViewport({ width: 1000, height: 800 });
    assert.ok(await tab.page.$eval("#side", (n) => getComputedStyle(n).display === "none"));
  },

  async axeInOneLook() {
    const proxy = await proxied();
    const tab = await open(proxy.url, LOOKS.dark);
    proxy.says([ALL_KINDS]);
    await tab.ask("Show everything.");
    await tab.answered();
    assert.deepEqual(await tab.axe(), []);
  },

  async narrowAndZoomed() {
    const proxy = await proxied();
    proxy.says([ALL_KINDS + "\n\n" + "longword".repeat(60)]);
    for (const [width, height] of [[320, 640], [320, 256], [1280, 1024]]) {
      const tab = await open(proxy.url, { width, height });
      await tab.ask("w".repeat(300));
      await tab.answered();
      const wide = await tab.page.evaluate(() => [document.scrollingElement.scrollWidth, innerWidth]);
      assert.ok(wide[0] <= wide[1], `${width} px: ${wide}`);
      for (const id of ["settings", "conversations"]) {
        await tab.page.click(`#${id}`);
        const dialog = await tab.page.$eval("dialog[open]", (d) => [d.getBoundingClientRect().left, d.getBoundingClientRect().right, d.scrollWidth - d.clientWidth]);
        assert.ok(dialog[0] >= 0 && dialog[1] <= width && dialog[2] <= 0, `${id} at ${width} px: ${dialog}`);
        await tab.page.keyboard.press("Escape");
      }
      await shot(tab, `zoom-${width}x${height}`);
    }
  },

  async forcedColors() {
    const proxy = await proxied();
    const tab = await open(proxy.url);
    const client = await tab.page.createCDPSession();
    await client.send("Emulation.setEmulatedMedia", { features: [{ name: "forced-colors", value: "active" }] });
    proxy.says([ALL_KINDS]);
    await tab.ask("Show everything.");
    await tab.answered();
    assert.ok(await tab.page.evaluate(() => matchMedia("(forced-colors: active)").matches));
    assert.deepEqual(await tab.axe(), []);
    await shot(tab, "forced-colors");
  },

  // ---- goals --------------------------------------------------------------------------------------

  async sizes() {
    const plain = await (await fetch(server, { headers: { "Accept-Encoding": "identity" } })).arrayBuffer();
    const zipped = await new Promise((done, fail) => {
      import("node:http").then(({ default: http }) => http.get(server, { headers: { "Accept-Encoding": "gzip" } }, (res) => {
        let n = 0;
        res.on("data", (d) => { n += d.length; });
        res.on("end", () => done(n));
      }).on("error", fail));
    });
    note(`page: ${plain.byteLength} bytes, gzip ${zipped} bytes`);
    assert.ok(plain.byteLength <= 64 << 10 && zipped <= 24 << 10);
  },

  async firstPaint() {
    const times = [];
    for (let i = 0; i < 5; i++) {
      const tab = await open();
      await tab.until(() => performance.getEntriesByName("first-contentful-paint").length);
      times.push(await tab.page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
      await tab.close();
    }
    times.sort((a, b) => a - b);
    note(`first contentful paint: ${times.map((t) => t.toFixed(0)).join(", ")} ms (median of five counts)`);
    assert.ok(times[2] < 100);
  },

  async tenThousandTokens() {
    const proxy = await proxied();
    const bodies = {
      prose: words(10000).map((w, i) => (i % 80 === 79 ? `**${w}**\n\n` : w)),
      oneParagraph: words(10000),
      code: ["```js\n", ...words(10000).map((w, i) => (i % 12 === 11 ? `${w}\n` : w))],
      list: words(10000).map((w, i) => (i % 10 === 0 ? `\n- ${w}` : w)),
      table: ["| a | b |\n|---|---|\n", ...words(10000).map((w, i) => (i % 10 === 0 ? `|\n| ${w} | ` : w))],
    };
    for (const [name, texts] of Object.entries(bodies)) {
      const tab = await open(proxy.url);
      await tab.page.evaluate(() => {
        window.long = [];
        new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask" });
      });
      proxy.streams(eventsOf(texts).reduce((out, event, i) => {
        if (i % 10 === 0) out.push("");
        out[out.length - 1] += event;
        return out;
      }, []), { delay: 2 });
      const from = Date.now();
      await tab.ask("go");
      await tab.page.waitForFunction(() => document.querySelector("article:last-child").dataset.state === "done", { timeout: 120000 });
      const text = await tab.lastText();
      assert.ok(text.includes("word9999"), name);
      const long = await tab.page.evaluate(() => window.long);
      note(`10,000 tokens, ${name}: ${((Date.now() - from) / 1000).toFixed(1)} s, tasks over 50 ms: ${long.length}` +
        (long.length ? ` (longest ${Math.max(...long)} ms)` : ""));
      tab.long = long;
      await tab.close();
    }
    const all = opened.flatMap((tab) => tab.long ?? []);
    assert.deepEqual(all, [], "no task over 50 ms");
  },

  async twoThousandMessages() {
    const tab = await open();
    const text = ALL_KINDS.slice(0, 400);
    const messages = Array.from({ length: 2000 }, (_, i) => (i % 2 ? { role: "assistant", content: `${i} ${text}`, state: "done" }
      : { role: "user", content: `Question ${i}` }));
    await importText(tab, JSON.stringify(exported(messages)));
    await tab.until(() => Object.keys(localStorage).some((k) => k.includes(":c:")));
    await tab.page.click("#conversations");
    const [first, all] = await tab.page.evaluate(async () => {
      const from = performance.now();
      document.querySelector("#items .open").click();
      await new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });
      const shown = performance.now() - from;
      while (document.querySelectorAll("article").length < 2000) await new Promise((done) => { setTimeout(done, 5); });
      return [shown, performance.now() - from];
    });
    await sleep(300);
    const end = await tab.page.evaluate(() => document.scrollingElement.scrollHeight - document.scrollingElement.clientHeight - document.scrollingElement.scrollTop);
    note(`2,000 messages: the end is painted after ${first.toFixed(0)} ms, all are there after ${all.toFixed(0)} ms`);
    assert.ok(end < 60, `at the end: ${end} px away`);
    assert.ok(first < 500 && all < 5000);
    await tab.page.reload();
    await tab.until(() => document.querySelectorAll("article").length === 2000);
  },

  async screenshots() {
    const proxy = await proxied();
    for (const [name, options] of Object.entries(LOOKS)) {
      const tab = await open(proxy.url, { ...options, height: name === "narrow" ? 640 : 720 });
      await shot(tab, `${name}-empty`);
      proxy.streams(eventsOf(DEMO.match(/[^]{1,4}/g), { more: [{ choices: [], timings: { predicted_n: 2, predicted_per_second: 41.2 } }] }));
      await tab.ask("How do I keep a fire going through the night?");
      await tab.answered();
      await tab.page.evaluate(() => { document.scrollingElement.scrollTop = 0; document.querySelector("#prompt").blur(); });
      await sleep(300);
      await shot(tab, name);
    }
  },
};

const LOOKS = {
  light: { width: 960, height: 700, scheme: "light" },
  dark: { width: 960, height: 700, scheme: "dark" },
  narrow: { width: 320, height: 700, scheme: "light" },
};

async function shot(tab, name) {
  if (process.env.HEARTH_SHOTS) await tab.page.screenshot({ path: path.join(process.env.HEARTH_SHOTS, `${name}.png`) });
}

const ALL_KINDS = `# A heading

Some *emphasis*, **strong** text, \`inline code\`, ~~deleted~~ and a [link](https://example.org/page). ![alt text](https://example.org/i.png)

## Second

- one
- two
  1. nested
  2. list

> A quote with **strong** text
> in two lines

\`\`\`python
def answer(question):
    return "a line of code that is long enough to be wider than a narrow window, so that it scrolls in itself"
\`\`\`

| name | value | note |
|------|------:|------|
| a | 1 | the first row of this table |
| b | 22 | the second |

---

The end, with an address: https://example.org/a_b_c
`;

const DEMO = `Bank the fire rather than feed it. In short:

1. Rake the coals together at the **back of the hearth**.
2. Lay one large, dense log on them: oak or beech.
3. Cover it *loosely* with ash, so that it still gets a little air.

| wood | burns for |
|------|-----------|
| birch | 2 h |
| oak | 6 h |

In the morning, rake the ash away and add kindling:

\`\`\`sh
build/hearth serve --model HuggingFaceTB/SmolLM2-135M-Instruct
\`\`\`
`;

const HOSTILE = [
  "<script>hacked=1</script>", "<img src=x onerror=hacked=1>", "<svg onload=hacked=1>", "<iframe srcdoc='<script>parent.hacked=1</script>'>",
  "<a href=javascript:hacked=1>x</a>", "[x](javascript:hacked=1)", "[x](JaVaScRiPt:hacked=1)", "[x](java\nscript:hacked=1)", "[x](&#106;avascript:hacked=1)",
  "[x](data:text/html,<script>hacked=1</script>)", "[x](vbscript:hacked)", "[x](blob:https://e.org/1)", "[x](file:///etc/passwd)", "[x](//evil.org/x)",
  "![x](https://evil.org/pixel.png)", "![x](javascript:hacked=1)", "<https://evil.org/\" onmouseover=\"hacked=1>", "[x](https://evil.org\" onclick=\"hacked=1)",
  "https://evil.org/\"onmouseover=\"hacked=1", "[https://good.org](https://good.org@evil.org/)", "</div></article></main><script>hacked=1</script>",
  "```\"><script>hacked=1</script>\ncode\n```", "```html\n<script>hacked=1</script>\n```", "`<img src=x onerror=hacked=1>`", "| <script>hacked=1</script> |\n|---|\n| <img src=x onerror=hacked=1> |",
  "# <script>hacked=1</script>", "> <iframe src=https://evil.org></iframe>", "- <object data=https://evil.org></object>", "<form action=https://evil.org><button>x</button></form>",
  "<style>*{background:url(https://evil.org)}</style>", "<link rel=stylesheet href=https://evil.org>", "<meta http-equiv=refresh content=0;url=https://evil.org>",
  "<base href=https://evil.org>", "<template><script>hacked=1</script></template>", "<math><mtext><style><img src=x onerror=hacked=1></style></mtext></math>",
  "\u202Egnp.exe\u202C [\u202Ex](https://evil.org)", "\u0000\u0001\u001b]0;hacked\u0007\ufeff\u2028\u2029", "__proto__ constructor toString {{7*7}} ${hacked=1} %3Cscript%3E",
  "[a](https://evil.org/" + "(".repeat(50) + ")".repeat(50) + ")" + "*_`[".repeat(200), "<!--<script>--><![CDATA[<script>hacked=1</script>]]><?php hacked ?>",
];

// ---- running --------------------------------------------------------------------------------------

async function run(name) {
  const from = Date.now();
  let verdict = "ok";
  opened = [];
  try {
    await cases[name]();
    assert.deepEqual(opened.flatMap((thing) => thing.faults), []);
  } catch (e) {
    verdict = `FAILED: ${e.stack ?? e}`;
    for (const tab of opened) if (process.env.HEARTH_SHOTS && tab.page && !tab.page.isClosed()) await shot(tab, `failed-${name}`).catch(() => {});
  }
  for (const thing of opened) await thing.close().catch(() => {});
  console.log(`${name}: ${verdict} (${((Date.now() - from) / 1000).toFixed(2)} s)`);
  return verdict === "ok";
}

let failed = 0;
try {
  for (const name of wanted.length ? wanted : Object.keys(cases)) failed += await run(name) ? 0 : 1;
} finally {
  await close();
  fs.rmSync(folder, { recursive: true });
}
if (!wanted.length) console.log(`${Object.keys(cases).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
