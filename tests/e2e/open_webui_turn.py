# SPDX-License-Identifier: MIT
"""One turn with Open WebUI's backend as its page asks for it: a saved chat, streamed, the tool run by the backend.

    open_webui_turn.py PROGRAM RESULT_FILE PROMPT     # prints the answer; settings are the caller's environment

The tool is a server of the kind that Open WebUI takes by its OpenAPI document; it writes what it adds into RESULT_FILE.
Title, tags and questions to follow are asked for behind the answer, as by the page.
"""
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

SECONDS = 100
NUMBER = {"type": "number"}
DOCUMENT = {"openapi": "3.1.0", "info": {"title": "Calculator", "version": "1"}, "paths": {"/add": {"post": {
    "operationId": "add", "summary": "Adds two numbers.",
    "requestBody": {"required": True, "content": {"application/json": {"schema": {
        "type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}}}},
    "responses": {"200": {"description": "their sum", "content": {"application/json": {"schema": NUMBER}}}}}}}}


class Calculator(http.server.BaseHTTPRequestHandler):
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(DOCUMENT)

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        total = given["a"] + given["b"]
        with open(sys.argv[2], "w", encoding="ascii") as f:
            f.write(f"{total}")
        self.answer(total)

    def log_message(self, *_):
        pass


def ask(base, path, body=None, token=None):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(base + path, data, headers), timeout=60) as reply:
        return json.load(reply)


def until(what, attempt):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if attempt():
            return
        time.sleep(0.2)
    sys.exit(f"{what}: nothing in {SECONDS} seconds")


def turn(base, prompt):
    """Sends the prompt as the page does and returns the text that the chat then holds."""
    token = ask(base, "/api/v1/auths/signin", {"email": "", "password": ""})["token"]
    model = ask(base, "/api/models", token=token)["data"][0]["id"]
    question, answer = str(uuid.uuid4()), str(uuid.uuid4())
    begun = ask(base, "/api/chat/completions", {
        "model": model, "stream": True, "messages": [{"role": "user", "content": prompt}], "parent_id": None,
        "user_message": {"id": question, "parentId": None, "role": "user", "content": prompt, "models": [model]},
        "session_id": str(uuid.uuid4()), "id": answer, "tool_ids": ["server:calculator"],
        "background_tasks": {"title_generation": True, "tags_generation": True, "follow_up_generation": True}}, token)
    chat = begun["chat_id"]
    until("the end of its tasks", lambda: not ask(base, f"/api/tasks/chat/{chat}", token=token)["task_ids"])
    message = ask(base, f"/api/v1/chats/{chat}", token=token)["chat"]["history"]["messages"][answer]
    return f"{message['content']}\n{message.get('error') or ''}"


def main():
    program, _, prompt = sys.argv[1:]
    tools = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Calculator)
    threading.Thread(target=tools.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    connection = {"url": f"http://127.0.0.1:{tools.server_port}", "path": "openapi.json", "type": "openapi",
                  "auth_type": "none", "key": "", "config": {"enable": True}, "info": {"id": "calculator", "name": "Calculator"}}
    env = {**os.environ, "TOOL_SERVER_CONNECTIONS": json.dumps([connection])}
    base = f"http://127.0.0.1:{port}"
    with subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)], env=env, stdout=sys.stderr) as backend:
        def ready():
            if backend.poll() is not None:
                sys.exit(f"Open WebUI ends with status {backend.returncode} before it listens")
            try:
                return ask(base, "/health")
            except (urllib.error.URLError, ConnectionError):
                return False
        try:
            until("Open WebUI's start", ready)
            print(turn(base, prompt))
        finally:
            backend.terminate()


if __name__ == "__main__":
    main()
