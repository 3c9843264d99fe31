#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files that are shipped, against the server they are for: metrics and options that deploy/ names are there, what
the binary carries is what the tree holds."""
import os
import re
import subprocess

from hearth_server import BIN, ROOT, Hearth, run_cases, with_named_key

METRIC = re.compile(r"\b(?:hearth_[a-z_]+|vllm:[a-z_]+)")
SELECTOR = re.compile(r"\b(hearth_[a-z_]+|vllm:[a-z_]+)\{([^}]*)\}")
ALERTS_TEST = os.path.join(ROOT, "tests", "e2e", "alerts_test.yml")


def texts():
    """(path, text) of every file in deploy/ but those of the models."""
    for folder, names, files in os.walk(os.path.join(ROOT, "deploy")):
        names[:] = [n for n in names if not n.startswith("demo")]
        for name in files:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as f:
                yield os.path.relpath(path, ROOT), f.read()


def labels_of(text):
    return set(re.findall(r'(\w+)="([^"]*)"', text))


def test_metrics_that_are_named_are_served():
    with with_named_key() as h:
        h.post("/v1/completions", {"prompt": "Once", "max_tokens": 1})
        series = [(name.split("{")[0], labels_of(name)) for name in h.metrics()]
    served = {name for name, _ in series}
    with open(ALERTS_TEST, encoding="utf-8") as f:
        all_texts = [*texts(), (ALERTS_TEST, f.read())]
    named = [(path, name) for path, text in all_texts for name in METRIC.findall(text)]
    assert len({n for _, n in named}) >= 2, named
    unknown = [(path, name) for path, name in named if name not in served]
    assert not unknown, f"not served: {unknown}"
    for path, text in all_texts:
        for name, selector in SELECTOR.findall(text):
            wanted = {(k, v) for k, v in labels_of(selector) if k not in ("instance", "job", "namespace")}
            assert any(n == name and wanted <= labels for n, labels in series), f"{path}: no {name}{{{selector}}}"


def option_variables():
    """Every environment variable that the program reads options from."""
    shown = subprocess.run([BIN, "--print-config"], capture_output=True, text=True, check=True, timeout=30).stdout
    keys = re.findall(r"^([a-z-]+) =", shown, re.M)
    assert len(keys) > 50, shown
    return {"HEARTH_" + k.upper().replace("-", "_") for k in keys} | {"HEARTH_API_KEY", "HEARTH_CONFIG"}


def test_variables_that_are_named_are_options():
    with open(os.path.join(ROOT, "Dockerfile"), encoding="utf-8") as f:
        all_texts = [*texts(), ("Dockerfile", f.read())]
    named = {(path, name) for path, text in all_texts for name in re.findall(r"\bHEARTH_[A-Z_]+", text)}
    assert len(named) > 5, named
    known = option_variables()
    unknown = sorted(row for row in named if row[1] not in known)
    assert not unknown, f"not options: {unknown}"


def test_compose_serves_the_mounted_model():
    text = dict(texts())["deploy/compose.yaml"]
    mounted = re.search(r"\$\{MODEL:-(\S+)\}:(/\w+):ro", text)
    served = re.search(r"HEARTH_MODEL: (\S+)", text)
    assert mounted and served and mounted.group(2) == served.group(1), (mounted, served)
    default = os.path.join(ROOT, "deploy", mounted.group(1))
    assert os.path.exists(os.path.join(default, "config.json")), default
    services = re.split(r"^  (?=\w+:$)", text.split("\nservices:\n")[1], flags=re.M)[1:]
    assert len(services) == 2 and all("\n    restart: " in s for s in services), services


def test_embedded_files_are_served_as_they_are():
    with open(os.path.join(ROOT, "server", "api", "openapi.json"), "rb") as f:
        wanted = f.read()
    with Hearth() as h:
        status, head, body = h.request("GET", "/openapi.json")
        assert status == 200 and head["content-type"] == "application/json", (status, head)
        assert body == wanted


if __name__ == "__main__":
    run_cases(globals())
