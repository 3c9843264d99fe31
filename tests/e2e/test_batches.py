#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files and batches of `--batch-dir`: shapes and refusals, uploads in any pieces, owners and quotas, cancel and expiry, and a
server that is killed at several points: each line has one answer, the bytes are those of a run that nothing has disturbed."""
import hashlib
import json
import os
import shutil
import signal
import time

from hearth_server import Hearth, read_all, roomy_folder, run, run_cases

ONE = ["--threads", "1", "--parallel", "2"]
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"


def line(custom_id, body, url=COMPLETE, method="POST"):
    return json.dumps({"custom_id": custom_id, "method": method, "url": url, "body": body})


def lines(n, tokens=4):
    return "".join(line(f"l{i}", {"prompt": f"Once {i} upon", "max_tokens": tokens}) + "\n" for i in range(n)).encode()


def form(parts, boundary="b0undary", end=True):
    """parts: (name, filename or None, bytes)"""
    out = b""
    for name, filename, data in parts:
        file = f'; filename="{filename}"' if filename is not None else ""
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data + b"\r\n"
    return out + (f"--{boundary}--\r\n".encode() if end else b"")


def upload(h, data, name="in.jsonl", key=None, more=(), purpose=b"batch", wanted=200):
    head = {"Content-Type": "multipart/form-data; boundary=b0undary", **({"Authorization": f"Bearer {key}"} if key else {})}
    status, _, answer = h.request("POST", "/v1/files", form([("purpose", None, purpose), *more, ("file", name, data)]), head)
    answer = json.loads(answer)
    assert status == wanted, (status, answer)
    return answer


def create(h, file, endpoint=COMPLETE, wanted=200, headers=None, **more):
    status, _, answer = h.post("/v1/batches", {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", **more}, headers)
    assert status == wanted, (status, answer)
    return answer


def wait(h, batch, *statuses, headers=None):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status, _, b = h.get(f"/v1/batches/{batch}", headers)
        assert status == 200, b
        if b["status"] in statuses:
            return b
        time.sleep(0.02)
    raise AssertionError(b)


def content(h, file):
    status, head, data = h.request("GET", f"/v1/files/{file}/content")
    assert status == 200 and head["content-type"] == "application/octet-stream" and int(head["content-length"]) == len(data), head
    return data


def rows(data):
    return [json.loads(text) for text in data.splitlines()]


def test_a_batch():
    with roomy_folder() as d, Hearth(*ONE, "--batch-dir", d) as h:
        text = lines(6) + line("bad", {"prompt": 5}).encode() + b"\r\n\n" + line("last", {"prompt": "x", "max_tokens": 1}).encode()
        file = upload(h, b"\xef\xbb\xbf" + text, more=[("expires_after[anchor]", None, b"created_at"), ("expires_after[seconds]", None, b"3600")])
        assert list(file) == ["id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status", "status_details"], file
        assert file["bytes"] == len(text) + 3 and file["expires_at"] == file["created_at"] + 3600 and file["status"] == "processed"
        made = create(h, file["id"], metadata={"a": "b"})
        assert made["status"] == "validating" and made["output_file_id"] is None and made["metadata"] == {"a": "b"}, made
        done = wait(h, made["id"], "completed")
        assert list(done) == list(made) and done["request_counts"] == {"total": 8, "completed": 7, "failed": 1}, done
        assert done["usage"]["output_tokens"] > 7 and done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]
        good, bad = rows(content(h, done["output_file_id"])), rows(content(h, done["error_file_id"]))
        assert [r["custom_id"] for r in good] == [f"l{i}" for i in range(6)] + ["last"] and [r["custom_id"] for r in bad] == ["bad"]
        assert good[0]["response"]["status_code"] == 200 and good[0]["response"]["body"]["created"] == made["created_at"], good[0]
        assert bad[0]["response"]["status_code"] == 400 and bad[0]["error"] is None, bad
        out = content(h, done["output_file_id"])
        for asked, status, part in (("bytes=0-9", 206, out[:10]), ("bytes=10-", 206, out[10:]), ("bytes=-5", 206, out[-5:]), ("bytes=9-8,1-2", 200, out),
                                    (f"bytes={len(out)}-", 416, b"")):
            got = h.request("GET", f"/v1/files/{done['output_file_id']}/content", headers={"Range": asked})
            assert (got[0], got[2]) == (status, part), (asked, got)
        assert [f["id"] for f in h.get("/v1/files")[2]["data"]] == [done["error_file_id"], done["output_file_id"], file["id"]]
        page = h.get("/v1/files?purpose=batch_output&limit=1&order=asc")[2]
        assert page["has_more"] and page["first_id"] == page["last_id"] == done["output_file_id"], page
        assert h.get(f"/files?after={done['output_file_id']}")[2]["data"] == [h.get(f"/v1/files/{file['id']}")[2]]
        assert h.get("/v1/batches")[2]["data"] == [done] and h.get("/v1/batches?after=x")[0] == 400 == h.get("/v1/batches?limit=101")[0]
        again = create(h, file["id"])
        assert rows(content(h, wait(h, again["id"], "completed")["output_file_id"]))[0]["response"]["body"]["choices"] == good[0]["response"]["body"]["choices"]
        metrics = h.get("/metrics")[2].decode()
        size = sum(f["bytes"] for f in h.get("/v1/files?purpose=batch")[2]["data"])
        for row in ('hearth_batches{status="completed"} 2', 'hearth_batches{status="failed"} 0', "hearth_batch_lines_waiting 0", "hearth_batch_rows_running 0",
                    f'hearth_batch_storage_bytes{{kind="input"}} {size}', "hearth_batch_paused 0", "hearth_batch_age_seconds 0"):
            assert row + "\n" in metrics, row
        assert 'hearth_batch_lines_total{result="completed"} 14' in metrics and 'hearth_request_duration_seconds_count 0' in metrics
        assert h.request("DELETE", f"/v1/files/{file['id']}")[0] == 200
        assert h.request("GET", f"/v1/files/{file['id']}/content")[0] == 404 == h.request("DELETE", f"/v1/files/{file['id']}")[0]
        assert h.request("POST", f"/v1/batches/{again['id']}/cancel")[0] == 400


def test_refusals():
    with roomy_folder() as d, Hearth(*ONE, "--batch-dir", d) as h:
        for purpose, code in ((b"vision", "unsupported_parameter"), (b"other", "invalid_value")):
            assert upload(h, b"x", purpose=purpose, wanted=400)["error"]["code"] == code
        head = {"Content-Type": "multipart/form-data; boundary=b0undary"}
        whole = form([("purpose", None, b"batch"), ("file", "a", b"x")])
        for body, says in ((form([("purpose", None, b"batch")]), "'file' is missing"), (form([("file", "a", b"x")]), "'purpose' is missing"),
                           (whole[:-8], "last boundary"), (form([("purpose", None, b"batch"), ("file", None, b"x")]), "filename"),
                           (form([("file", "a", b"x")] * 2), "more than one"), (form([("file", "a", b"x")] * 0 + [(f"p{i}", None, b"") for i in range(99)]), "too many"),
                           (form([("purpose", None, b"b" * 64)]), "too long"), (form([("purpose", None, b"batch"), ("file", "a", b"")]), "empty"),
                           (form([("purpose", None, b"batch"), ("expires_after[seconds]", None, b"7"), ("file", "a", b"x")]), "3600")):
            status, _, answer = h.request("POST", "/v1/files", body, head)
            assert status == 400 and says in json.loads(answer)["error"]["message"], (body, answer)
        assert h.request("POST", "/v1/files", whole, {"Content-Type": "application/json"})[0] == 415
        assert h.request("POST", "/v1/files", whole, {"Content-Type": "multipart/form-data"})[0] == 400
        assert h.request("POST", "/v1/files", whole, {**head, "Origin": "http://x.test"})[0] == 403 == h.request("DELETE", "/v1/files/x", headers={"Origin": "http://x.test"})[0]
        assert h.request("DELETE", "/v1/batches/x")[0] == 405 and "DELETE" in h.request("OPTIONS", "/v1/files/x")[1]["allow"]
        assert os.listdir(os.path.join(d, "files")) == []
        name = upload(h, b"x", name="../..\\ü" + "y" * 300)["filename"]
        assert name.startswith("üy") and len(name.encode()) == 255, name
        pieces = form([("file", "a\r\nb", b"\r\n--b0undar" * 9000), ("purpose", None, b"batch")])
        with h.open_socket() as s:  # in chunks, the boundary split everywhere
            s.sendall(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nContent-Type: " + head["Content-Type"].encode() + b"\r\n\r\n")
            pieces = pieces.replace(b"a\r\nb", b"a")
            for i in range(0, len(pieces), 997):
                s.sendall(b"%x\r\n%b\r\n" % (len(pieces[i:i + 997]), pieces[i:i + 997]))
            s.sendall(b"0\r\n\r\n")
            answer = read_all(s)
        file = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert file["bytes"] == 99000 and content(h, file["id"]) == b"\r\n--b0undar" * 9000, answer
        with h.open_socket() as s:  # a client that leaves takes its upload with it
            s.sendall(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\nContent-Type: " + head["Content-Type"].encode() + b"\r\n\r\n" + pieces[:90000])
            wait_for(lambda: any(f.endswith(".tmp") for f in os.listdir(os.path.join(d, "files"))))
        wait_for(lambda: not any(f.endswith(".tmp") for f in os.listdir(os.path.join(d, "files"))))
        good = upload(h, lines(1))["id"]
        for body, field in (({}, "input_file_id"), ({"input_file_id": good, "endpoint": "/v1/x", "completion_window": "24h"}, "endpoint"),
                            ({"input_file_id": good, "endpoint": COMPLETE, "completion_window": "8d"}, "completion_window"),
                            ({"input_file_id": good, "endpoint": COMPLETE, "completion_window": "24h", "metadata": {"a": 1}}, "metadata"),
                            ({"input_file_id": good, "endpoint": COMPLETE, "completion_window": "24h", "output_expires_after": {"seconds": 1}}, "output_expires_after")):
            status, _, answer = h.post("/v1/batches", body)
            assert status == 400 and answer["error"]["param"] == field, answer
        for window, seconds in (("1h", 3600), ("168h", 604800), ("7d", 604800), ("0h", 0), ("169h", 0), ("8d", 0), ("1", 0), ("1hd", 0)):
            b = create(h, good, completion_window=window, wanted=200 if seconds else 400)
            assert not seconds or b["expires_at"] - b["created_at"] == seconds, (window, b)
        assert create(h, "file-x", wanted=404)["error"]["code"] == "not_found" == h.get("/v1/batches/x")[2]["error"]["code"]
        twice = [create(h, good, headers={"Idempotency-Key": "k"})["id"] for _ in range(2)]
        assert twice[0] == twice[1] != create(h, good)["id"]
        bad = upload(h, (line("a", {}, CHAT) + "\n" + line("b", {"model": "none"}) + "\n{\n" + line("b", {}) + "\n").encode())
        failed = wait(h, create(h, bad["id"])["id"], "failed")
        assert [(e["code"], e["line"]) for e in failed["errors"]["data"]] == [("url_mismatch", 1), ("model_not_found", 2), ("invalid_json_line", 3),
                                                                             ("duplicate_custom_id", 4)], failed
        assert failed["request_counts"]["total"] == 0 and failed["output_file_id"] is None
        text = "".join(line(f"e{i}", {"input": ["x"] * 2048 if i else [[1, 2], [3]]}, "/v1/embeddings") + "\n" for i in range(27))
        many = wait(h, create(h, upload(h, text.encode())["id"], "/v1/embeddings")["id"], "failed")["errors"]["data"]
        assert [(e["code"], e["line"]) for e in many] == [("too_many_inputs", 26)] and "51202" in many[0]["message"] and "50000" in many[0]["message"], many
    with Hearth(*ONE) as h:
        assert h.get("/v1/files")[0] == h.get("/v1/batches")[0] == h.request("POST", "/v1/files", b"", head)[0] == 404


def test_hostile_forms():
    mark = ("b0undary=" * 8)[:70]  # the longest one; .NET's clients quote it, and quote no names
    plain = {"Content-Type": "multipart/form-data; boundary=b"}

    def send(h, body, headers=plain):
        status, _, answer = h.request("POST", "/v1/files", body, headers)
        return status, json.loads(answer)

    def part(rest, data=b"x", boundary="b"):
        return f"--{boundary}\r\nContent-Disposition: form-data; {rest}\r\n\r\n".encode() + data + b"\r\n"

    with roomy_folder() as d, Hearth(*ONE, "--batch-dir", d) as h:
        purpose, end = part("name=purpose", b"batch"), b"--b--\r\n"
        near = f" --{mark} {mark}\r\n-{mark}\r\n--{mark[:-1]}\r\r\n--\n--{mark}\r--{mark}".encode()
        body = part("name=purpose", b"batch", mark) + part("name=file; filename=in.jsonl; filename*=utf-8''in.jsonl", near, mark) + f"--{mark}--\r\n".encode()
        status, file = send(h, body, {"Content-Type": f'multipart/form-data; boundary="{mark}"'})
        assert status == 200 and file["filename"] == "in.jsonl" and content(h, file["id"]) == near, file
        for rest, name in (('filename="a\\"b"', 'a"b'), ('filename="/../../etc/x%22"', "x%22"), ("filename*=UTF-8''caf%C3%A9", "UTF-8''caf%C3%A9"),
                           ('filename="ü"', "ü"), (f'filename="{"y" * 4096}"', "y" * 255)):
            status, file = send(h, purpose + part("name=\"file\"; " + rest) + end)
            assert status == 200 and file["filename"] == name, (rest, file)
        head, tail = part("name=file; filename=a", b"")[:-2], b"\r\n" + purpose + end
        for at in range(len(tail) + 1):  # the pieces of 64 KiB that are read end at every byte of it
            data = b"\r\n--" * 20000
            data = data[:65536 - len(head) - at]
            status, file = send(h, head + data + tail)
            assert status == 200 and file["bytes"] == len(data), (at, file)
            if at % 16 == 0:
                assert content(h, file["id"]) == data
        whole = purpose + part('name="file"; filename="a"') + end
        n = len(os.listdir(os.path.join(d, "files")))
        for body, says in ((part("name=a") * 10000 + end, "too many parts"), (part("filename=a") + end, "no name"), (part('name="fi\0le"; filename=a') + end, "control"),
                           (part('name=file; filename="a\0b"') + end, "control"), (part(f'name=file; filename="{"y" * 9000}"') + end, "too long"),
                           (part("name=file; filename=a") * 2 + end, "more than one"), (whole[:-4], "last boundary"), (b"x" * 200000, "last boundary"),
                           (part("name=file; filename=a?").replace(b"?", b"\xff") + end, "UTF-8")):
            status, answer = send(h, body)
            assert status == 400 and says in answer["error"]["message"], (says, answer)
        assert len(os.listdir(os.path.join(d, "files"))) == n


def wait_for(there):
    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_keys_and_cancelling():
    with roomy_folder() as d:
        keys = os.path.join(d, "keys")
        with open(keys, "w", encoding="ascii") as f:
            f.write("ann name=ann\nbob\n")
        with Hearth(*ONE, "--batch-dir", os.path.join(d, "b"), "--batch-bytes", "4M", "--api-key-file", keys) as h:
            ann, bob = ({"Authorization": f"Bearer {key}"} for key in ("ann", "bob"))
            file = upload(h, lines(400, 60), key="ann")["id"]
            for path in (f"/v1/files/{file}", f"/v1/files/{file}/content"):
                other, none = h.request("GET", path, headers=bob), h.request("GET", path.replace(file, "file-x"), headers=bob)
                assert other[0] == none[0] == 404 and other[2] == none[2], (other, none)
            assert h.request("DELETE", f"/v1/files/{file}", headers=bob)[0] == 404 and h.get("/v1/files", bob)[2]["data"] == []
            assert upload(h, b"x" * 850000, key="ann", wanted=403)["error"]["code"] == "quota_exceeded"
            batch = create(h, file, headers=ann)["id"]
            assert create(h, file, headers=bob, wanted=404) and h.get(f"/v1/batches/{batch}", bob)[0] == 404
            wait(h, batch, "in_progress", headers=ann)
            assert h.request("DELETE", f"/v1/files/{file}", headers=ann)[0] == 409
            deadline = time.monotonic() + 60
            while not h.get(f"/v1/batches/{batch}", ann)[2]["request_counts"]["completed"]:
                assert time.monotonic() < deadline
            assert h.post(f"/v1/batches/{batch}/cancel", {}, bob)[0] == 404
            second = create(h, file, headers=ann)["id"]
            other = create(h, upload(h, lines(3), key="bob")["id"], headers=bob)["id"]
            status, _, b = h.post(f"/v1/batches/{batch}/cancel", {}, ann)
            assert status == 200 and b["status"] == "cancelling", b
            done = wait(h, batch, "cancelled", headers=ann)
            counts = done["request_counts"]
            assert counts["completed"] > 0 and counts["completed"] + counts["failed"] == counts["total"] == 400, counts
            for name, n in (("output_file_id", counts["completed"]), ("error_file_id", counts["failed"])):
                status, _, data = h.request("GET", f"/v1/files/{done[name]}/content", headers=ann)
                assert status == 200 and len(rows(data)) == n
            assert rows(data)[-1]["error"]["code"] == "batch_cancelled" and rows(data)[-1]["response"] is None
            assert 'hearth_key_requests_total{key="ann"}' in h.request("GET", "/metrics", headers=ann)[2].decode()
            wait(h, other, "completed", headers=bob)  # keys take turns
            assert h.post(f"/v1/batches/{second}/cancel", {}, ann)[2]["request_counts"]["completed"] < 400
            small = upload(h, lines(2000, 60), key="bob")["id"]
            left = create(h, small, headers=bob)["id"]
            with open(keys, "w", encoding="ascii") as f:  # a key that goes takes its batches along
                f.write("ann name=ann\n")
            h.process.send_signal(signal.SIGHUP)
            wait_for(lambda: json.load(open(os.path.join(d, "b", "batches", left + ".json"), encoding="utf-8"))["status"] == "cancelled")


def test_the_operator_and_erased_keys():
    with roomy_folder() as top:
        d, keys, gone, operator = (os.path.join(top, name) for name in ("b", "keys", "gone", "operator"))
        for path, text in ((keys, "ann\nbob\n"), (gone, "# has left\nann name=ann\n"), (operator, "boss\n")):
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
        head = {key: {"Authorization": f"Bearer {key}"} for key in ("ann", "bob", "boss")}
        erase = ["batch", "--erase-key", gone, "--batch-dir"]
        with Hearth(*ONE, "--batch-dir", d, "--api-key-file", keys, "--operator-key-file", operator) as h:
            made = [create(h, upload(h, lines(2), key=key)["id"], headers=head[key], metadata={"secret": key}) for key in ("ann", "bob", "ann")]
            ended = [wait(h, b["id"], "completed", headers=head[key]) for b, key in zip(made, ("ann", "bob", "ann"))]
            status, _, answer = h.get("/v1/batches?all=true", head["boss"])
            assert status == 200 and [sorted(b) for b in answer["data"]] == [["created_at", "id", "object", "owner", "request_counts", "status"]] * 3, answer
            assert [(b["id"], b["status"], b["request_counts"]) for b in answer["data"]] == [(b["id"], b["status"], b["request_counts"]) for b in ended[::-1]]
            assert [b["owner"] for b in answer["data"]] == [hashlib.sha256(key).hexdigest()[:8] for key in (b"ann", b"bob", b"ann")]
            page = h.get(f"/batches?all=true&limit=1&after={made[2]['id']}", head["boss"])[2]
            assert page["has_more"] and [b["id"] for b in page["data"]] == [made[1]["id"]], page
            for query in ("all=true", "all=", "limit=1&all", "all=tru%65"):
                assert h.get("/v1/batches?" + query, head["ann"])[0] == h.get("/v1/batches?" + query)[0] == 401, query
            assert h.get("/v1/batches", head["boss"])[0] == 401 and h.get("/v1/batches?%61ll=true", head["bob"])[2]["data"] == [ended[1]]
            code, out, err = run(*erase, d)
            assert code == 1 and f"process {h.process.pid} has this directory" in err and not out, err
        code, out, err = run(*erase, d)
        assert code == 0 and out == f"erased 6 files and batches of {d}\n", (out, err)
        assert len(os.listdir(os.path.join(d, "batches"))) == 1 and len(os.listdir(os.path.join(d, "files"))) == 4
        for more, says in (([], "needs --batch-dir"), ([d + "x"], "needs --batch-dir"), ([d, "in.jsonl"], "alone")):
            code, out, err = run(*(erase if more else erase[:-1]), *more)
            assert code and says in err and not out and not os.path.exists(d + "x"), err
        with Hearth(*ONE, "--batch-dir", d, "--api-key-file", keys, "--swap", "off") as h:
            assert h.get("/v1/batches?all=true", head["ann"])[0] == 403
            assert h.get("/v1/batches", head["ann"])[2]["data"] == h.get("/v1/files", head["ann"])[2]["data"] == []
            assert h.get("/v1/batches", head["bob"])[2]["data"] == [ended[1]] and len(h.get("/v1/files", head["bob"])[2]["data"]) == 2


def test_killed_and_started_again():
    """At each moment: while the batch is new, while it runs, with a torn record, when it has ended."""
    n = 40
    with roomy_folder() as top:
        first = os.path.join(top, "first")
        with Hearth(*ONE, "--batch-dir", first) as h:
            file = upload(h, lines(n, 6))["id"]
        began = os.path.join(top, "began")
        with Hearth(*ONE, "--batch-dir", first) as h:
            batch = create(h, file)["id"]
            h.process.kill()
            h.process.wait()
            h.stop = lambda *args, **kw: 0
        shutil.copytree(first, began)
        with Hearth(*ONE, "--batch-dir", first) as h:
            done = wait(h, batch, "completed")
            wanted = content(h, done["output_file_id"])
            assert [r["custom_id"] for r in rows(wanted)] == [f"l{i}" for i in range(n)]
        for at in (1, n // 2, n - 1, "stopped", "torn"):
            d = os.path.join(top, f"at{at}")
            shutil.copytree(began, d)
            with Hearth(*ONE, "--batch-dir", d) as h:
                while at != "stopped" and h.get(f"/v1/batches/{batch}")[2]["request_counts"]["completed"] < (at if at != "torn" else 3):
                    pass
                if at != "stopped":
                    h.process.kill()
                    h.process.wait()
                    h.stop = lambda *args, **kw: 0
            results = os.path.join(d, "batches", batch + ".results")
            if at == "torn" and os.path.exists(results):
                with open(results, "r+b") as f:
                    f.truncate(os.path.getsize(results) - 7)
            with Hearth(*ONE, "--batch-dir", d) as h:
                again = wait(h, batch, "completed")
                assert content(h, again["output_file_id"]) == wanted and again["request_counts"] == done["request_counts"], at
                assert again["output_file_id"] == done["output_file_id"] and not os.path.exists(results)
                code, _, err = run("serve", "--port", "0", "--batch-dir", d)
                assert code == 1 and f"process {h.process.pid} has this directory" in err, err
        with open(os.path.join(began, "files", file), "r+b") as f:
            f.truncate(100)
        with open(os.path.join(began, "batches", batch + ".json"), encoding="utf-8") as f:
            doc = json.load(f)
        with open(os.path.join(began, "batches", batch + ".json"), "w", encoding="utf-8") as f:
            json.dump({**doc, "status": "in_progress", "_hash": "0" * 64}, f)
        expired = os.path.join(top, "expired")
        shutil.copytree(first, expired)
        with open(os.path.join(expired, "batches", batch + ".json"), "w", encoding="utf-8") as f:
            json.dump({**doc, "expires_at": 1}, f)
        for name in os.listdir(os.path.join(expired, "files")):
            if not name.startswith(file):
                os.remove(os.path.join(expired, "files", name))
        with Hearth(*ONE, "--batch-dir", began) as h:
            assert wait(h, batch, "failed")["errors"]["data"][0]["code"] == "input_changed"
        with Hearth(*ONE, "--batch-dir", expired) as h:
            done = wait(h, batch, "expired")
            assert done["output_file_id"] is None and done["request_counts"] == {"total": n, "completed": 0, "failed": n}, done
            assert {r["error"]["code"] for r in rows(content(h, done["error_file_id"]))} == {"batch_expired"}


if __name__ == "__main__":
    run_cases(globals())
