#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What clients of other servers send and read: llama-server's, vLLM's, OpenAI's and Anthropic's habits."""
from hearth_server import Hearth, run_cases

SERVER = None
GREEDY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 48, "temperature": 0}
FIVE = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


def ok(path, body, **kw):
    status, _, answer = SERVER.post(path, body, **kw)
    assert status == 200, f"{status}: {answer}"
    return answer


def refused(path, body, code="invalid_value", param=None, status=400):
    got, _, answer = SERVER.post(path, body)
    assert got == status, f"{got}, not {status}: {str(answer)[:300]}"
    error = answer["error"]
    assert error["code"] == code and (param is None or error["param"] == param), error
    return error["message"]


# ---- fields ------------------------------------------------------------------------------------------

def test_n_predict_to_the_end_of_the_context():
    """n_predict: -1 is llama-server's word for as many tokens as fit; the other fields say so when they get -1."""
    ctx = SERVER.get("/props")[2]["n_ctx"]
    for path, body in (("/v1/completions", {"prompt": [5] * (ctx - 40)}), ("/v1/chat/completions", CHAT)):
        body = {k: v for k, v in body.items() if k != "max_tokens"}
        usage = ok(path, dict(body, n_predict=-1, ignore_eos=True))["usage"]
        assert usage["total_tokens"] in (ctx, ctx + 1), (path, usage)
        for field in ("max_tokens", "max_completion_tokens"):
            assert "'n_predict': -1" in refused(path, dict(body, **{field: -1}), param=field)
        assert ok(path, dict(body, n_predict=-1, max_tokens=2, ignore_eos=True))["usage"]["completion_tokens"] == 2
        assert ok(path, dict(body, n_predict=3, ignore_eos=True))["usage"]["completion_tokens"] == 3
        refused(path, dict(body, n_predict=-2), param="n_predict")
    assert "n_predict" in refused("/v1/responses", {"input": "a", "max_output_tokens": -1}, param="max_output_tokens")


def test_continue_final_message_excludes_a_generation_prompt():
    for path in ("/v1/chat/completions", "/tokenize", "/apply-template"):
        body = dict(FIVE, continue_final_message=True, max_tokens=1)
        message = refused(path, dict(body, add_generation_prompt=True), param="continue_final_message")
        assert "add_generation_prompt" in message
        for value in (False, None):
            ok(path, dict(body, add_generation_prompt=value))
        ok(path, dict(body, continue_final_message=False, add_generation_prompt=True))
        ok(path, body)


def test_64_stop_strings():
    text = ok("/v1/completions", GREEDY)["choices"][0]["text"]
    stops = [f"never {i}" for i in range(63)] + [text[8:12]]
    assert ok("/v1/completions", dict(GREEDY, stop=stops))["choices"][0]["text"] == text[:text.index(text[8:12])]
    assert "at most 64" in refused("/v1/completions", dict(GREEDY, stop=stops + ["x"]), param="stop")


def test_names_that_clients_make_up_for_the_only_model():
    """Clients of servers with one model send a placeholder; --strict-model takes real names alone."""
    name = SERVER.get("/v1/models")[2]["data"][0]["id"]
    for model in ("default", "tgi", "dummy"):
        assert ok("/v1/completions", dict(GREEDY, model=model, max_tokens=1))["model"] == name
        assert ok("/v1/embeddings", {"input": "a", "model": model})["model"] == name
        ok("/tokenize", {"content": "a", "model": model})
    refused("/v1/completions", dict(GREEDY, model="dumm"), status=404, code="model_not_found")
    with Hearth("--strict-model", "--alias", "real,tgi") as h:
        for model, status in (("real", 200), ("tgi", 200), (None, 200), ("default", 404), ("dummy", 404)):
            got, _, answer = h.post("/v1/completions", dict(GREEDY, model=model, max_tokens=1))
            assert got == status, (model, got, answer)


def test_refused_content_parts_are_named():
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    odd = {"type": "\u001b[31m" + "x" * 1000}
    for path, field in (("/v1/chat/completions", "messages"), ("/apply-template", "messages"),
                        ("/v1/responses", "input")):
        for part, name in ((image, "'image_url'"), (odd, "xxxx")):
            body = {field: [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]}
            message = refused(path, body, code="unsupported_parameter", param=f"{field}[0].content[1]")
            assert name in message and len(message) < 250 and "\u001b" not in message, message
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}], "max_tokens": 1}
    status, _, answer = SERVER.post("/v1/messages", body)
    assert status == 400 and "'image'" in answer["error"]["message"], answer
    message = refused("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]},
                      code="unsupported_parameter", param="input[0]")
    assert "'item_reference'" in message, message


def test_did_you_mean_only_what_is_near():
    for path, hint in (("/v1/completion", "/v1/completions"), ("/v1/chat/completion", "/v1/chat/completions"),
                       ("/v1/embedding", "/v1/embeddings"), ("/chat/completions/", None), ("/rerank", None),
                       ("/v1/rerank", None), ("/api/generate", None), ("/v1/audio/speech", None), ("/", None),
                       ("/v1/model", "/v1/models"), ("/helth", "/health"), ("/x", None)):
        status, _, answer = SERVER.request("GET", path)
        message = answer.decode()
        if status == 405:
            continue
        assert status == 404, (path, status)
        assert ("did you mean " + hint + "?" in message) if hint else "did you mean" not in message, message


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
