#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What deploy/kubernetes relies on, without a cluster: the metrics that the Gateway API inference extension's endpoint
picker reads, before, under and after load; its files against each other and against the server. tests/cluster has the
cluster."""
import glob
import os
import re
import subprocess
import tempfile
import threading

from hearth_server import BIN, ROOT, Hearth, run_cases

FOLDER = os.path.join(ROOT, "deploy", "kubernetes")
PARALLEL, WAITING = 2, 2
# What the picker reads by default, or is told to read by deploy/kubernetes, and the kind of value.
READ = {"vllm:num_requests_waiting": r"\d+", "vllm:num_requests_running": r"\d+",
        "vllm:kv_cache_usage_perc": r"0(\.\d+)?(e-\d+)?|1", "vllm:cache_config_info": "1"}


def read(path):
    with open(os.path.join(FOLDER, path), encoding="utf-8") as f:
        return f.read()


def families(h):
    """{name: (type, [(labels, value)])} of the metrics that the picker reads, as its parser sees them."""
    status, head, body = h.request("GET", "/metrics")
    assert status == 200 and head["content-type"].startswith("text/plain"), (status, head)
    found, kind = {}, {}
    for line in body.decode().splitlines():
        words = line.split(" ")
        if line.startswith("# TYPE "):
            kind[words[2]] = words[3]
        elif (name := line.split("{")[0].split(" ")[0]) in READ:
            assert name in kind, f"{name} has a sample before its type"
            found.setdefault(name, (kind[name], []))[1].append(
                (dict(re.findall(r'(\w+)="([^"]*)"', line)), words[-1]))
    return found


def values(h):
    """{name: value}, after a check of everything that does not depend on the load."""
    found = families(h)
    assert set(found) == set(READ), f"missing: {set(READ) - set(found)}"
    numbers = {}
    for name, (kind, samples) in found.items():
        assert kind == "gauge" and len(samples) == 1, f"{name}: {kind}, {samples}"
        labels, value = samples[0]
        assert re.fullmatch(READ[name], value), f"{name} is {value}"
        assert labels["model_name"] == "hearth-demo" and labels["engine"] == "0", labels
        numbers[name] = float(value)
    size = found["vllm:cache_config_info"][1][0][0]
    assert set(size) == {"model_name", "engine", "block_size", "num_gpu_blocks"}, size
    page, n_pages = int(size["block_size"]), int(size["num_gpu_blocks"])
    assert page > 0 and page * n_pages >= PARALLEL * 1024, size
    return numbers


def fill(h, picker, body):
    """Threads of requests that fill slots and queue of an engine which is then paused; begun anew when the first
    ones were over before the pause."""
    for _ in range(20):
        threads = [threading.Thread(target=h.post, args=("/v1/completions", body, {"Authorization": "Bearer secret"}))
                   for _ in range(PARALLEL + WAITING)]
        h.pause_engine()
        for t in threads:
            t.start()
        picker.wait_until(lambda: values(picker)["vllm:num_requests_waiting"] == len(threads), 20, "requests wait")
        generated = picker.metrics()["hearth_generated_tokens_total"]
        h.resume_engine()
        picker.wait_until(lambda: picker.metrics()["hearth_generated_tokens_total"] > generated, 20, "requests run")
        h.pause_engine()
        now = values(picker)
        if (now["vllm:num_requests_running"], now["vllm:num_requests_waiting"]) == (PARALLEL, WAITING):
            return threads
        h.resume_engine()
        for t in threads:
            t.join()
    raise AssertionError("requests never ran and waited at once")


def test_picker_reads_the_load():
    body = {"prompt": "Once upon a time", "max_tokens": 1000, "ignore_eos": True}
    with Hearth("--parallel", str(PARALLEL), "--ctx-size", "1024", "--debug-hooks", "on", "--metrics-port", "0",
                env={"HEARTH_API_KEY": "secret"}) as h:
        picker = h.admin()  # the port that the picker is told to read; it has no key
        idle = values(picker)
        assert not idle["vllm:num_requests_waiting"] and not idle["vllm:num_requests_running"], idle
        assert idle["vllm:kv_cache_usage_perc"] == 0, idle
        threads = fill(h, picker, body)
        busy = values(picker)
        assert 0 < busy["vllm:kv_cache_usage_perc"] <= 1, busy
        h.resume_engine()
        for t in threads:
            t.join()
        picker.wait_until(lambda: values(picker) == idle, 20, "the gauges are as before")


def test_picker_is_told_where_to_read():
    picker, ini = read("overlays/inference-pool/picker.yaml"), read("base/hearth.ini")
    port = re.search(r"^metrics-port = (\d+)$", ini, re.M).group(1)
    assert f"--model-server-metrics-port={port}" in picker
    assert f"{{name: metrics, containerPort: {port}}}" in read("base/deployment.yaml")
    assert "--kv-cache-usage-percentage-metric=vllm:kv_cache_usage_perc" in picker


def test_grace_period_is_longer_than_the_drain():
    ini = read("base/hearth.ini")
    drain_ms = sum(int(re.search(rf"^drain-{part}-ms = (\d+)$", ini, re.M).group(1)) for part in ("delay", "timeout"))
    grace_s = int(re.search(r"terminationGracePeriodSeconds: (\d+)", read("base/deployment.yaml")).group(1))
    assert drain_ms / 1000 + 10 <= grace_s, (drain_ms, grace_s)


def test_ini_file_with_the_container_s_variables():
    """The image sets HEARTH_* variables, and they win over the file: the Deployment empties those of both."""
    with open(os.path.join(ROOT, "Dockerfile"), encoding="utf-8") as f:
        env = dict(re.findall(r"\b(HEARTH_[A-Z_]+)=(\S+)", f.read().split("\nENV ")[1]))
    assert env["HEARTH_DRAIN_DELAY_MS"], env
    env |= dict(re.findall(r'{name: (HEARTH_[A-Z_]+), value: "?(.*?)"?}', read("base/deployment.yaml")))
    with tempfile.TemporaryDirectory() as d:
        keys = os.path.join(d, "keys")
        with open(keys, "w", encoding="ascii", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
            f.write("secret\n")
        text = read("base/hearth.ini")
        assert env["HEARTH_CONFIG"] == "/etc/hearth/hearth.ini" and "/etc/hearth/keys" in text
        env["HEARTH_CONFIG"] = os.path.join(d, "hearth.ini")
        with open(env["HEARTH_CONFIG"], "w", encoding="utf-8") as f:
            f.write(text.replace("/etc/hearth/keys", keys))
        env["PATH"] = os.environ["PATH"]
        for how in ("--check-config", "--print-config"):
            p = subprocess.run([BIN, "serve", how], env=env, capture_output=True, text=True, check=False, timeout=60)
            assert p.returncode == 0, p.stderr
        shown = p.stdout
    for line in re.findall(r"^[a-z-]+ = .*$", text, re.M):
        assert re.search(rf"^{re.escape(line.replace('/etc/hearth/keys', keys))}$", shown, re.M), f"{line} is not used"
    assert "allow-public-without-key = off" in shown and "host = 0.0.0.0" in shown


def test_alerts_are_those_of_prometheus():
    with open(os.path.join(ROOT, "deploy", "prometheus", "alerts.yml"), encoding="utf-8") as f:
        groups = f.read().split("\n", 1)[1]
    rule = read("overlays/monitoring/rules.yaml").split("\nspec:\n")[1]
    assert re.sub(r"^  ", "", rule, flags=re.M) == groups, "overlays/monitoring/rules.yaml differs from alerts.yml"


def test_every_file_is_in_a_kustomization():
    for path in glob.glob(os.path.join(FOLDER, "**", "*"), recursive=True):
        if os.path.isfile(path) and os.path.basename(path) != "kustomization.yaml":
            assert os.path.basename(path) in read(os.path.join(os.path.dirname(path), "kustomization.yaml")), path


def test_kserve_s_option_is_accepted():
    p = subprocess.run([BIN, "serve", "--model_name", "smollm2", "--print-config"], capture_output=True, text=True,
                       check=False, timeout=60)
    assert p.returncode == 0 and "\nalias = smollm2\n" in p.stdout, p.stderr


if __name__ == "__main__":
    run_cases(globals())
