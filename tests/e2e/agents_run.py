#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: agents, unmodified and headless, against a model that writes a given text: a text turn, a tool turn.

    tests/e2e/agents_run.py [codex] [codex-mcp] [claude] [opencode] [aider] [open-webui] [open-webui-responses] [templates]

`templates` is Codex with each of six published chat templates of HEARTH_REFERENCE: what it says as system, developer and user
must be in every prompt, each text once. They are installed into build/libraries first; Open WebUI's packages take 7 GiB. Each has a home of its own and a network of
loopback alone. The table says what happened, with the tokens of each request's prompt and those of them that came from the
prefix cache. Behind a call, Codex, Claude Code and Open WebUI must find 0.95 of the prompt before it there. No request may
be refused.
"""
import fcntl
import http.client
import http.server
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

from hearth_server import Hearth
from install_libraries import HERE, node_modules, venv
from scripted_model import ScriptedModel, cut

SECONDS, CACHED, CONTEXT = 240, 0.95, 131072
HELLO, DONE = "Good morning from a script.", "Nothing more is wanted here."
WRITE = "echo hearth > written.txt"
MARKERS = ["<tool_call>", "</tool_call>"]
# The model calls its tool if the user's text holds CALL, and ends the turn behind a result.
TEMPLATE = """{% for t in tools or [] %}<|im_start|>tool
{{ t | tojson }}<|im_end|>
{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% set turn = messages | rejectattr('role', 'equalto', 'system') | list %}{% if turn[-1].role == 'tool' %}<|result|>\
{% elif 'CALL' in turn[-1].content %}<|call|>{% endif %}{% endif %}"""


def model(name, arguments):
    call = f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
    return ScriptedModel(cut(HELLO, 1), TEMPLATE, MARKERS, CONTEXT,
                         {"<|call|>": cut(call, 2, MARKERS), "<|result|>": cut(DONE, 3)})


# ---- published templates -------------------------------------------------------------------------------------------

# The published one with the cues behind it, as the messages reach it: results may be text of the user.
CUES = """{% if add_generation_prompt %}{% set last = messages[-1] %}{% if last.role == 'tool' or '<tool_response>' in last.content | string %}\
<|result|>{% elif 'CALL your tool' in last.content | string %}<|call|>{% endif %}{% endif %}"""
COMMAND = {"cmd": WRITE}
JSON_CALL = f'{{"name": "exec_command", "arguments": {json.dumps(COMMAND)}}}'
PUBLISHED = {  # what its model writes as a call
    "Qwen-Qwen3-0.6B": f"<tool_call>\n{JSON_CALL}\n</tool_call>",
    "Qwen3.5-4B": f"<tool_call>\n<function=exec_command>\n<parameter=cmd>\n{WRITE}\n</parameter>\n</function>\n</tool_call>",
    "HuggingFaceTB-SmolLM3-3B": f"<tool_call>[{JSON_CALL}]</tool_call>",
    "mistralai-Mistral-Nemo-Instruct-2407": f"[TOOL_CALLS][{JSON_CALL}]",
    "meta-llama-Llama-3.2-3B-Instruct": JSON_CALL.replace("arguments", "parameters"),
    "LFM2.5-Instruct": f'<|tool_call_start|>[exec_command(cmd="{WRITE}")]<|tool_call_end|>',
}


def published_model(name):
    with open(os.path.join(os.environ["HEARTH_REFERENCE"], "goldens", "templates", name + ".jinja"), encoding="utf-8") as f:
        template = f.read()
    texts = [cut(HELLO, 1), cut(PUBLISHED[name], 2), cut(DONE, 3)]
    if name == "Qwen3.5-4B":  # its prompt ends inside a block of reasoning
        for pieces in texts:
            pieces[0] = b"</think>\n\n" + pieces[0]
    return ScriptedModel(texts[0], template + CUES, (), CONTEXT, {"<|call|>": texts[1], "<|result|>": texts[2]})


class Recorder(http.server.ThreadingHTTPServer):
    """Passes requests on to a server, and keeps the bodies of those to /v1/responses."""

    def __init__(self, server):
        self.server, self.bodies = server, []
        super().__init__(("127.0.0.1", 0), RecorderHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class RecorderHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.pass_on()

    def do_POST(self):
        self.pass_on()

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.endswith("/responses"):
            self.server.bodies.append(json.loads(body))
        to = http.client.HTTPConnection(self.server.server.url.removeprefix("http://"))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        to.request(self.command, self.path, body, headers)
        answer = to.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        to.close()

    def log_message(self, *_):
        pass


def parts_of(content):
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def chat_of(body):
    """The same request for chat completions, so that /apply-template shows its prompt."""
    messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    for item in body["input"]:
        if item["type"] == "message":
            messages.append({"role": item["role"], "content": [{"type": "text", "text": t} for t in parts_of(item["content"])]})
        elif item["type"] == "function_call":
            call = {"id": item["call_id"], "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif item["type"] == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": "\n".join(parts_of(item["output"]))})
    tools = []
    for tool in body["tools"]:
        space = tool["name"] + "__" if tool["type"] == "namespace" else ""
        tools += [{"type": "function", "function": {**t, "name": space + t["name"]}}
                  for t in (tool["tools"] if space else [tool]) if t["type"] == "function"]
    return {"messages": messages, "tools": tools}


def missing_texts(server, body):
    """What a request says as system, developer or user and is not in its prompt, or not once."""
    chat = chat_of(body)
    if effort := (body.get("reasoning") or {}).get("effort"):
        chat["reasoning_effort"] = effort
    counted = server.post("/v1/responses/input_tokens", body)[2]["input_tokens"]
    assert server.post("/tokenize", chat)[2]["count"] == counted, "not the same prompt"
    prompt = server.post("/apply-template", chat)[2]["prompt"]
    return [part["text"][:60] for m in chat["messages"] if m["role"] in ("system", "developer", "user")
            for part in ([{"text": m["content"]}] if isinstance(m["content"], str) else m["content"])
            if prompt.count(part["text"].strip()) != 1]


# ---- a server of tools over the Model Context Protocol, for Codex: its functions come as a namespace --------------

ADD = {"name": "add", "description": "Adds two numbers.", "inputSchema": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}


def serve_tools():
    for line in sys.stdin:
        ask = json.loads(line)
        method, given = ask.get("method"), ask.get("params", {})
        result = {"initialize": {"protocolVersion": given.get("protocolVersion"), "capabilities": {"tools": {}},
                                 "serverInfo": {"name": "calculator", "version": "1"}},
                  "tools/list": {"tools": [ADD]}}.get(method, {})
        if method == "tools/call":
            total = given["arguments"]["a"] + given["arguments"]["b"]
            with open(os.environ["RESULT_FILE"], "w", encoding="ascii") as f:
                f.write(f"{total}")
            result = {"content": [{"type": "text", "text": f"{total}"}], "isError": False}
        if "id" in ask:
            print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": result}), flush=True)


# ---- the agents: command line, files of the home, variables ---------------------------------------------------------

def node(program):
    return os.path.join(node_modules("agents", "package_agents.json"), ".bin", program)


def codex(url, home, prompt, mcp):
    config = [f'model_providers.h={{name="h",base_url="{url}/v1",wire_api="responses"}}', "model_provider=h"]
    if mcp:
        arguments = json.dumps([os.path.abspath(__file__), "--tools"])
        config.append(f'mcp_servers.calculator={{command="{sys.executable}",args={arguments},'
                      f'env={{RESULT_FILE="{home}/work/written.txt"}},default_tools_approval_mode="approve"}}')
    os.makedirs(os.path.join(home, ".codex"), exist_ok=True)
    # Codex's own sandbox cannot begin inside the namespace that this script runs in.
    return [node("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "default",
            *(word for c in config for word in ("-c", c)), prompt], {}


def claude(url, home, prompt, mcp):
    return [node("claude"), "-p", prompt, "--model", "default", "--allowedTools", "Bash"], {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def opencode(url, home, prompt, mcp):
    folder = os.path.join(home, ".config", "opencode")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "opencode.json"), "w", encoding="ascii") as f:
        json.dump({"model": "hearth/default", "permission": {"*": "allow"}, "provider": {"hearth": {
            "npm": "@ai-sdk/openai-compatible", "name": "Hearth", "options": {"baseURL": url + "/v1", "apiKey": "none"},
            "models": {"default": {"name": "default"}}}}}, f)
    return [node("opencode"), "run", prompt], {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def aider(url, home, prompt, mcp):
    program = os.path.join(venv("aider", "requirements_aider.txt"), "bin", "aider")
    return [program, "--model", "openai/default", "--openai-api-base", url + "/v1",
            "--openai-api-key", "none", "--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update",
            "--analytics-disable", "--no-fancy-input", "--no-pretty", "--message", prompt], {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def open_webui(url, home, prompt, mcp):
    program = os.path.join(venv("open-webui", "requirements_open_webui.txt"), "bin", "open-webui")
    script, result = os.path.join(HERE, "open_webui_turn.py"), os.path.join(home, "work", "written.txt")
    os.makedirs(os.path.join(home, "data"), exist_ok=True)
    return [sys.executable, script, program, result, prompt], {
        "DATA_DIR": os.path.join(home, "data"), "OPENAI_API_BASE_URL": url + "/v1", "OPENAI_API_KEY": "none",
        "RAG_EMBEDDING_ENGINE": "openai", "ENABLE_OLLAMA_API": "False", "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none",
        "ENABLE_PERSISTENT_CONFIG": "False", "OFFLINE_MODE": "True", "ANONYMIZED_TELEMETRY": "False"}


def open_webui_responses(url, home, prompt, mcp):
    command, variables = open_webui(url, home, prompt, mcp)
    return command, {**variables, "OPENAI_API_CONFIGS": '{"0": {"enable": true, "api_type": "responses"}}'}


SHELL = {"command": WRITE}
# agent -> how it is started, its tool, the tool's arguments, what the tool writes, whether the cache is judged
AGENTS = {
    "codex": (codex, "exec_command", {"cmd": WRITE}, "hearth", True),
    "codex-mcp": (codex, "mcp__calculator__add", {"a": 2, "b": 3}, "5", True),
    "claude": (claude, "Bash", SHELL, "hearth", True),
    "opencode": (opencode, "bash", SHELL, "hearth", False),
    "aider": (aider, "none", {}, None, False),
    "open-webui": (open_webui, "add", {"a": 2, "b": 3}, "5", True),
    "open-webui-responses": (open_webui_responses, "add", {"a": 2, "b": 3}, "5", True),
}


# ---- turns ----------------------------------------------------------------------------------------------------------

def requests_of(server, since):
    """(path, status, prompt tokens, cached ones) of the server's log."""
    rows = [json.loads(line) for line in server.log[since:] if '"event":"request"' in line]
    return [(r["path"].split("?")[0], r["status"], r.get("prompt_tokens", 0), r.get("cached_tokens", 0)) for r in rows
            if r["method"] == "POST" and r["path"].startswith("/v1/") and "_tokens" not in r["path"]]


def turn(server, agent, home, prompt, url=None):
    """(what the agent printed, its exit status or that of a request that failed, the requests it made)"""
    start, _, _, _, _ = AGENTS[agent]
    command, variables = start(url or server.url, home, prompt, agent.endswith("-mcp"))
    since = len(server.log)
    env = {"PATH": os.environ["PATH"], "HOME": home, "TERM": "dumb", "NO_COLOR": "1", **variables}
    done = subprocess.run(command, cwd=os.path.join(home, "work"), env=env, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", timeout=SECONDS, capture_output=True, check=False)
    if os.environ.get("HEARTH_SHOW"):
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n--\n", flush=True)
    asked = requests_of(server, since)
    return done.stdout, done.returncode or next((r[1] for r in asked if r[1] != 200), 0), asked


def run_turns(server, agent, home, name, url=None):
    """Rows of the table: name, turn, verdict, requests."""
    written, judged = AGENTS[agent][3:]
    os.makedirs(os.path.join(home, "work"))
    text, status, asked = turn(server, agent, home, "Say good morning.", url)
    yield name, "text", "ok" if status == 0 and HELLO in text else f"FAILED: {status} {text[-200:]!r}", asked
    if written is None:
        return
    text, status, asked = turn(server, agent, home, "CALL your tool once.", url)
    path = os.path.join(home, "work", "written.txt")
    result = open(path, encoding="ascii").read().strip() if os.path.exists(path) else None
    verdict = "ok" if status == 0 and DONE in text and result == written else f"FAILED: {status} {result} {text[-200:]!r}"
    mine = sorted(asked, key=lambda r: -r[2])[:2]  # side requests, such as for a title, are short
    if judged and verdict == "ok" and (len(mine) < 2 or mine[0][3] < CACHED * mine[1][2]):
        verdict = "FAILED: too few cached tokens"
    yield name, "tool", verdict, asked


def run_agent(agent):
    _, tool, arguments, _, _ = AGENTS[agent]
    with tempfile.TemporaryDirectory() as home, model(tool, arguments) as m, \
            Hearth("--model", m.dir, "--accept-any-model", "on") as server:
        yield from run_turns(server, agent, home, agent)


def run_templates():
    for name in PUBLISHED:
        with tempfile.TemporaryDirectory() as home, published_model(name) as m, \
                Hearth("--model", m.dir, "--accept-any-model", "on") as server, Recorder(server) as recorder:
            for *row, verdict, asked in run_turns(server, "codex", home, name[:20], recorder.url):
                bodies, recorder.bodies = recorder.bodies, []
                missing = verdict == "ok" and [text for body in bodies for text in missing_texts(server, body)]
                yield *row, f"FAILED: not in the prompt: {missing}" if missing else verdict, asked


def leave_the_network():
    """Goes on in a network namespace that has loopback alone."""
    if os.environ.get("HEARTH_ALONE"):
        with socket.socket() as s:
            fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
        return
    os.environ["HEARTH_ALONE"] = "1"
    unshare = shutil.which("unshare") or sys.exit("no unshare: apt install util-linux")
    os.execv(unshare, [unshare, "--net", "--map-root-user", sys.executable, *sys.argv])


def main():
    wanted = sys.argv[1:] or list(AGENTS) + ["templates"] * ("HEARTH_REFERENCE" in os.environ)
    if not os.environ.get("HEARTH_ALONE"):
        node("codex")
        if "aider" in wanted:
            venv("aider", "requirements_aider.txt")
        if any(agent.startswith("open-webui") for agent in wanted):
            venv("open-webui", "requirements_open_webui.txt")
    leave_the_network()
    failed = 0
    for agent in wanted:
        for name, kind, verdict, asked in run_templates() if agent == "templates" else run_agent(agent):
            failed += verdict != "ok"
            print(f"{name:20} {kind:5} {verdict}")
            for path, status, prompt, cached in asked:
                print(f"{'':27}{path} {status}: {prompt} tokens, {cached} cached")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--tools"]:
        serve_tools()
    else:
        main()
