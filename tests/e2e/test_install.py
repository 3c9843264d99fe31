#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`meson install` below an empty directory: the program, the demo model, the systemd units and a configuration are
where the prefix says, and work from there. `systemd-analyze verify` and `security` over the units, where it is."""
import json
import os
import re
import shutil
import subprocess
import tempfile

from hearth_server import DEMO, Hearth, run_cases

BUILD = os.environ.get("HEARTH_BUILD_ROOT") or os.path.dirname(os.environ["HEARTH_BIN"])
TREE = tempfile.TemporaryDirectory()
MOST_EXPOSURE = 15  # of the service, in tenths, as `systemd-analyze security` counts it


def install():
    p = subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", TREE.name],
                       capture_output=True, text=True, check=False, timeout=120)
    assert p.returncode == 0, p.stdout + p.stderr


def options():
    shown = subprocess.run(["meson", "introspect", BUILD, "--buildoptions"], capture_output=True, check=True, timeout=60)
    values = {o["name"]: o["value"] for o in json.loads(shown.stdout)}
    return {name: os.path.join(values["prefix"], values[name]) for name in ("bindir", "datadir", "mandir", "sysconfdir")} | {
        "units": os.path.join(values["prefix"], "lib/systemd/system"),
        "sysusers": os.path.join(values["prefix"], "lib/sysusers.d")}


PATHS = options()


def installed(place, *parts):
    return TREE.name + os.path.join(PATHS[place], *parts)


def text_of(*where):
    with open(installed(*where), encoding="utf-8") as f:
        return f.read()


def test_files_are_where_the_prefix_says():
    install()
    for where in (("bindir", "hearth"), ("datadir", "doc/hearth/LICENSE"), ("datadir", "hearth/config.example.ini"),
                  ("datadir", "hearth/demo/model.safetensors"),
                  ("datadir", "hearth/demo-embed/1_Pooling/config.json"), ("datadir", "hearth/demo-embed/model.safetensors"),
                  ("datadir", "hearth/demo-rerank/model.safetensors"), ("datadir", "hearth/api-keys.conf"), ("mandir", "man1/hearth.1"),
                  ("datadir", "bash-completion/completions/hearth"), ("datadir", "zsh/vendor-completions/_hearth"),
                  ("datadir", "fish/vendor_completions.d/hearth.fish"), ("units", "hearth.service"), ("units", "hearth.socket"),
                  ("sysusers", "hearth.conf"), ("sysconfdir", "hearth/hearth.ini")):
        assert os.path.isfile(installed(*where)), where
    unit = text_of("units", "hearth.service")
    command = f"{PATHS['bindir']}/hearth serve --config {PATHS['sysconfdir']}/hearth/hearth.ini"
    assert f"\nExecStart={command}\n" in unit, unit
    for text in (unit, text_of("datadir", "hearth/api-keys.conf"), text_of("sysconfdir", "hearth/hearth.ini")):
        assert not re.search(r"@\w+@", text), text


def test_the_program_serves_its_demo_model():
    assert os.path.exists(os.path.join(DEMO, "config.json"))
    ini = installed("sysconfdir", "hearth/hearth.ini")
    command = [installed("bindir", "hearth"), "serve", "--config", ini]
    p = subprocess.run(command + ["--check-config"], capture_output=True, text=True, check=False, timeout=60)
    of_root = os.geteuid() == 0 and "root can read everything" in p.stderr
    assert p.returncode == 0 and (of_root or not p.stderr), p.stderr
    with Hearth("--port", "0", "--drain-delay-ms", "0", command=command) as h:
        assert h.get("/v1/models")[2]["data"][0]["id"] == "hearth-demo"
    for name in ("demo", "demo-embed", "demo-rerank"):
        p = subprocess.run([command[0], "inspect", "--model", name], capture_output=True, text=True, check=False, timeout=60)
        assert p.returncode == 0 and "safetensors" not in p.stderr, (name, p.stderr)


def test_a_changed_configuration_stays():
    with open(installed("sysconfdir", "hearth/hearth.ini"), "a", encoding="utf-8") as f:
        f.write("# mine\n")
    install()
    assert text_of("sysconfdir", "hearth/hearth.ini").endswith("# mine\n")


def test_what_ends_a_service_that_cannot_start():
    unit = text_of("units", "hearth.service")
    values = dict(re.findall(r"^(\w+)=([\w ]+)$", unit, re.M))
    assert values["RestartPreventExitStatus"] == "2 3 4 6 8", values
    starts, interval, pause = (int(values[k]) for k in ("StartLimitBurst", "StartLimitIntervalSec", "RestartSec"))
    assert starts * pause < interval, "the start limit is never reached"
    assert "/bin/kill" not in re.sub("#.*", "", unit), "procps is not on every system"


def test_systemd_takes_the_units():
    program = shutil.which("systemd-analyze")
    if not program:
        print("  (no systemd-analyze: apt install systemd)")
        return
    with tempfile.TemporaryDirectory() as d:
        units = [os.path.join(d, name) for name in ("hearth.service", "hearth.socket")]
        for path in units:
            text = text_of("units", os.path.basename(path))
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(f"{PATHS['bindir']}/hearth", installed("bindir", "hearth")))
        os.mkdir(os.path.join(d, "hearth.service.d"))
        shutil.copy(installed("datadir", "hearth/api-keys.conf"), os.path.join(d, "hearth.service.d"))
        safe = subprocess.run([program, "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSURE}", units[0]],
                              capture_output=True, text=True, check=False, timeout=60)
        assert safe.returncode == 0 and "exposure level" in safe.stdout, safe.stdout + safe.stderr
        p = subprocess.run([program, "verify", "--man=no", *units], capture_output=True, text=True, check=False,
                           timeout=60, env=dict(os.environ, SYSTEMD_LOG_LEVEL="warning"))
        ours = [l for l in (p.stdout + p.stderr).splitlines() if "hearth" in l]
        assert p.returncode == 0 and not ours, p.stdout + p.stderr


if __name__ == "__main__":
    run_cases(globals())
