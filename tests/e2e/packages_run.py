#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The packages of deploy/release.sh on the systems they are for, by hand:

    packages_run.py RELEASE [--roots DIR] [--mirror URL]

RELEASE is what release.sh made. The .deb: lintian, then install, start, upgrade under load, remove and purge in a
fresh Debian 12 that systemd has booted in namespaces of its own; and in Debian 12, Debian 13 and Ubuntu 24.04: `hearth
pull` by root from fake_hub.py, the service serving that model by its name and fetching one itself, upgrade, purge. The
.deb for arm64, if RELEASE has it and the kernel runs arm64 programs by qemu-user-static: what `hearth generate` says.
The tarball: in roots of Debian 11, 12 and 13 without any package. The wheel: in a virtual environment. Needs root,
debootstrap, dpkg-dev, lintian, openssl and the network for apt. DIR keeps the fresh roots; copies of them are used.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv

from debian_root import Clock, make_root, use_network
from hearth_server import Hearth, make_certificate

WITH_SYSTEMD = "systemd,systemd-sysv,dbus"
SUITES = {"systemd": ("bookworm", WITH_SYSTEMD), "systemd-trixie": ("trixie", WITH_SYSTEMD),
          "systemd-noble": ("noble", WITH_SYSTEMD), "bullseye": ("bullseye", ""), "bookworm": ("bookworm", ""),
          "trixie": ("trixie", ""), "arm64": ("bookworm", "")}
BOOT = r"""
set -e
root=$0
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
ip link set lo up
cd "$root"
mkdir -p .outside
pivot_root . .outside
umount -l .outside
exec env -i container=hearth PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot / /lib/systemd/systemd </dev/null >/dev/null 2>&1
"""
# a hub in the network of a machine, until its stdin ends
HUB = """
import sys
sys.path.insert(0, sys.argv[1])
from fake_hub import FakeHub, files_of
with FakeHub() as hub:
    for name in ("acme/tiny", "acme/other"):
        hub.add(name, files_of(sys.argv[2]))
    print(hub.url, flush=True)
    sys.stdin.read()
"""
# what the service is asked while it is upgraded; prints how often it answered and how often not
LOAD = """
import sys, json, threading, time, urllib.request
good, bad, end = [], [], threading.Event()
def ask():
    while not end.is_set():
        body = json.dumps({"prompt": "Once", "max_tokens": 16, "temperature": 0}).encode()
        request = urllib.request.Request("http://127.0.0.1:8080/v1/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                good.append(json.load(answer)["choices"][0]["text"])
        except Exception as e:
            bad.append(str(e))
threads = [threading.Thread(target=ask) for _ in range(4)]
for t in threads: t.start()
sys.stdin.read()
end.set()
for t in threads: t.join()
print(json.dumps([len(good), len(set(good)), bad[:3], len(bad)]))
"""


def sh(*command, **options):
    p = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, **options)
    assert p.returncode == 0, (command, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout


def fresh_root(a, name, work):
    """A copy of a bare Debian, made first if it is not there."""
    suite, packages = SUITES[name]
    kept = os.path.join(a.roots or work, "fresh-" + name)
    if not os.path.exists(kept):
        make_root(kept + ".part", suite, packages, a.mirror, "arm64" if name == "arm64" else None)
        os.rename(kept + ".part", kept)
    root = os.path.join(work, name)
    sh("cp", "-a", kept, root)
    use_network(root)
    return root


class Booted:
    """systemd as process 1 of its own process, mount, network and cgroup namespaces."""

    def __init__(self, root):
        # unshare complains when the systemd in it is killed at the end
        self.process = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--pid", "--uts", "--ipc", "--net",
                                         "--cgroup", "--fork", "sh", "-c", BOOT, root], stderr=subprocess.DEVNULL)
        self.pid = None
        self.wait_for("systemd", lambda: self.find() and self.status("systemctl", "is-system-running") in ("running", "degraded"))

    def find(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            self.pid = f.read().strip()
        return self.pid

    def command(self, *words, network=True):
        """In all its namespaces; without `network` in the outer one, for apt."""
        return ["nsenter", "-t", self.pid, "-m", "-p", "-u", "-i", "-C", *(["-n"] if network else []), *words]

    def run(self, *words, network=True):
        return sh(*self.command(*words, network=network))

    def status(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=False, timeout=60).stdout.strip()

    def apt(self, *words):
        return self.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends", *words, network=False)

    def wait_for(self, what, test):
        end = time.monotonic() + 60
        while not test():
            assert time.monotonic() < end, f"{what}: not within a minute"
            time.sleep(0.05)

    def end(self):
        if self.pid:
            os.kill(int(self.pid), signal.SIGKILL)
        self.process.wait()


def another_revision(deb, work, revision):
    """The same package with a higher revision."""
    tree = os.path.join(work, f"deb-{revision}")
    sh("dpkg-deb", "--raw-extract", deb, tree)
    control = os.path.join(tree, "DEBIAN", "control")
    with open(control, encoding="utf-8") as f:
        text = f.read()
    with open(control, "w", encoding="utf-8") as f:
        f.write(re.sub(r"^(Version: .*)-1$", rf"\1-{revision}", text, flags=re.M))
    sh("dpkg-deb", "--root-owner-group", "--build", tree, os.path.join(work, f"hearth-{revision}.deb"))
    return os.path.join(work, f"hearth-{revision}.deb")


def files_named_hearth(root):
    """Everything in a root that has the name, but apt's and dpkg's books, logs and our own copies."""
    found = sh("find", root, "-xdev", "-iname", "*hearth*").split()
    ours = re.compile(r"^/(var/(cache/apt|log|lib/(apt|dpkg/info/hearth\.list))|proc|sys|run|tmp|hearth-\d\.deb)")
    return sorted(path[len(root):] for path in found if not ours.match(path[len(root):]))


def deb_life(a, work, clock):
    deb = glob.glob(os.path.join(a.release, "hearth_*_amd64.deb"))[0]
    if shutil.which("lintian"):
        p = subprocess.run(["lintian", "--allow-root", "--no-cfg", deb], capture_output=True, text=True, check=False, timeout=300)
        assert not re.search(r"^E:", p.stdout, re.M) and p.returncode == 0, p.stdout
        clock.step(f"lintian: {len(re.findall('^W:', p.stdout, re.M))} warnings, no errors")
    else:
        print("           (no lintian)")
    root = fresh_root(a, "systemd", work)
    before = files_named_hearth(root)
    assert not before, before
    for revision, path in ((1, deb), *((n, another_revision(deb, work, n)) for n in (2, 3, 4))):
        shutil.copy(path, os.path.join(root, f"hearth-{revision}.deb"))
    clock.step("a fresh Debian 12")
    machine = Booted(root)
    try:
        clock.step("systemd has booted: " + machine.status("systemctl", "is-system-running"))
        machine.run("apt-get", "-qq", "update", network=False)
        life(machine, root, clock)
    finally:
        machine.end()


def installed_version(machine):
    return machine.status("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "hearth")


def main_pid(machine):
    return machine.status("systemctl", "show", "-P", "MainPID", "hearth")


def life(machine, root, clock):
    active = lambda unit="hearth": machine.status("systemctl", "is-active", unit)  # noqa: E731
    machine.apt("install", "/hearth-1.deb")
    assert active() == "active" and machine.status("systemctl", "is-enabled", "hearth") == "enabled"
    machine.run("hearth", "healthcheck")
    account = machine.run("getent", "passwd", "hearth").split(":")
    owner = machine.run("stat", "-c", "%u", f"/proc/{main_pid(machine)}").strip()
    assert owner == account[2] != "0", (owner, account)
    assert "hearth" in machine.run("cat", "/usr/share/bash-completion/completions/hearth")
    clock.step(f"installed and started, {machine.run('hearth', '--version').splitlines()[0]}, as uid {owner}; exposure "
               + re.findall(r"level for \S+: (\S+)", machine.run("systemd-analyze", "security", "hearth"))[-1])

    ini = os.path.join(root, "etc", "hearth", "hearth.ini")
    with open(ini, "a", encoding="utf-8") as f:
        f.write("[compute]\nparallel = 3\n")
    machine.run("systemctl", "stop", "hearth")
    machine.run("systemctl", "enable", "--now", "hearth.socket")
    machine.run("systemctl", "start", "hearth")
    pid = main_pid(machine)
    load = subprocess.Popen(["nsenter", "-t", machine.pid, "-n", sys.executable, "-c", LOAD], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    machine.apt("install", "/hearth-2.deb")
    assert active() == "active" and main_pid(machine) != pid, "the new version runs"
    time.sleep(1)
    n_good, n_different, why, n_bad = json.loads(load.communicate("")[0])
    assert n_good > 100 and n_different == 1 and n_bad == 0, (n_good, n_different, why, n_bad)
    assert installed_version(machine).endswith("-2")
    with open(ini, encoding="utf-8") as f:
        assert f.read().endswith("parallel = 3\n"), "the changed configuration stays"
    clock.step(f"upgraded while running, systemd holding the port: {n_good} requests answered meanwhile, {n_bad} failed")

    machine.run("systemctl", "disable", "--now", "hearth.socket")
    machine.run("systemctl", "restart", "hearth")
    pid = main_pid(machine)
    machine.apt("install", "/hearth-3.deb")
    assert active() == "active" and main_pid(machine) != pid
    clock.step("upgraded while running, without the socket")
    machine.run("systemctl", "disable", "--now", "hearth")
    machine.apt("install", "/hearth-4.deb")
    assert active() == "inactive" and machine.status("systemctl", "is-enabled", "hearth") == "disabled"
    clock.step("upgraded while stopped and disabled: it stays so")
    machine.run("systemctl", "enable", "--now", "hearth")
    pid = main_pid(machine)
    machine.apt("install", "--reinstall", "--allow-downgrades", "/hearth-1.deb")
    assert active() == "active" and main_pid(machine) != pid
    clock.step("downgraded to the first while running")

    machine.apt("remove", "hearth")
    assert active() != "active" and not machine.status("pidof", "hearth")
    assert installed_version(machine).startswith("config-files"), installed_version(machine)
    left = files_named_hearth(root)
    assert not any(path.startswith(("/usr", "/lib", "/bin")) for path in left) and os.path.exists(ini), left
    clock.step(f"removed: what is left is {' '.join(left)}")
    machine.apt("install", "/hearth-2.deb")
    assert active() == "active" and machine.status("systemctl", "is-enabled", "hearth") == "enabled"
    machine.run("hearth", "healthcheck")
    clock.step("installed again, with the old configuration")
    machine.apt("purge", "hearth")
    left = files_named_hearth(root)
    assert not left and active() != "active" and not machine.status("pidof", "hearth"), left
    failed = machine.status("systemctl", "list-units", "--failed", "--no-legend", "--plain")
    assert "hearth" not in failed, failed
    machine.run("getent", "passwd", "hearth")
    clock.step("purged: no file has the name; the account stays")


def served_name(machine):
    """The name of the model that the service serves, asked from its own network."""
    ask = "import json, urllib.request; print(json.load(urllib.request.urlopen('http://127.0.0.1:8080/v1/models', timeout=30))['data'][0]['id'])"
    return sh("nsenter", "-t", machine.pid, "-n", sys.executable, "-c", ask).strip()


def by_name(machine, root, hub_url):
    """`sudo hearth pull`, a model by its name, a model that the service fetches itself, upgrade, purge."""
    machine.apt("install", "/hearth-1.deb", "ca-certificates", "libcurl3-gnutls")
    assert machine.status("systemctl", "is-active", "hearth") == "active" and served_name(machine) == "hearth-demo"
    p = subprocess.run(machine.command("env", f"HF_ENDPOINT={hub_url}", "hearth", "pull", "acme/tiny"), capture_output=True,
                       text=True, check=False, timeout=60)
    assert p.returncode == 0 and "pulling into the service's cache, /var/cache/hearth/hub" in p.stderr, p
    assert p.stdout.startswith("/var/cache/hearth/hub/models--acme--tiny/snapshots/"), p.stdout
    owners = set(machine.run("find", "/var/cache/hearth", "-printf", "%u\\n").split())
    assert owners == {"hearth"}, owners

    ini = os.path.join(root, "etc", "hearth", "hearth.ini")

    def configure(text):
        with open(ini, "r+", encoding="utf-8") as f:
            kept = f.read().split("\n# test\n")[0]
            f.seek(0)
            f.truncate()
            f.write(f"{kept}\n# test\n[model]\n{text}")
        said = machine.run("hearth", "serve", "--config", "/etc/hearth/hearth.ini", "--check-config")
        assert said == "the configuration is valid for user hearth\n", said
        machine.run("systemctl", "restart", "hearth")

    configure("model = acme/tiny\n")
    assert served_name(machine) == "acme/tiny"
    drop_in = os.path.join(root, "etc", "systemd", "system", "hearth.service.d")
    os.makedirs(drop_in)
    with open(os.path.join(drop_in, "hub.conf"), "w", encoding="utf-8") as f:
        f.write(f"[Service]\nEnvironment=HF_ENDPOINT={hub_url}\n")
    machine.run("systemctl", "daemon-reload")
    configure("model = acme/other\npull = on\n")
    assert served_name(machine) == "acme/other"
    assert {"acme/tiny", "acme/other"} <= set(machine.run("hearth", "list").split())
    machine.apt("install", "/hearth-2.deb")
    assert served_name(machine) == "acme/other" and installed_version(machine).endswith("-2")
    assert machine.run("hearth", "rm", "acme/tiny", "-y").startswith("removed acme/tiny: ")
    shutil.rmtree(drop_in)
    machine.apt("purge", "hearth")
    left = files_named_hearth(root)
    assert not left, left


def debs_by_name(a, work, clock):
    deb = glob.glob(os.path.join(a.release, "hearth_*_amd64.deb"))[0]
    assert "utf8proc" not in sh("dpkg-deb", "--field", deb, "Depends")
    here = os.path.dirname(os.path.abspath(__file__))
    demo = os.path.join(here, "..", "..", "deploy", "demo")
    for name in ("systemd", "systemd-trixie", "systemd-noble"):
        shutil.rmtree(os.path.join(work, name), ignore_errors=True)
        root = fresh_root(a, name, work)
        for revision, path in ((1, deb), (2, another_revision(deb, tempfile.mkdtemp(dir=work), 2))):
            shutil.copy(path, os.path.join(root, f"hearth-{revision}.deb"))
        machine = Booted(root)
        hub = subprocess.Popen(["nsenter", "-t", machine.pid, "-n", sys.executable, "-c", HUB, here, demo], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
        try:
            machine.run("apt-get", "-qq", "update", network=False)
            by_name(machine, root, hub.stdout.readline().strip())
        finally:
            hub.communicate("")
            machine.end()
        system = re.search(r'PRETTY_NAME="(.*)"', sh(*in_root(root, "cat", "/etc/os-release"))).group(1)
        clock.step(f"{system}: installed, pulled by root, served by name, fetched by the service, upgraded, purged")


def arm64_deb(a, work, clock):
    found = glob.glob(os.path.join(a.release, "hearth_*_arm64.deb"))
    emulated = glob.glob("/proc/sys/fs/binfmt_misc/qemu-aarch64")
    if not found or not emulated:
        print(f"           (arm64 left out: {'no emulation of its programs' if found else 'no package'})")
        return
    root = mounted(fresh_root(a, "arm64", work))
    shutil.copy(found[0], os.path.join(root, "hearth.deb"))
    assert "utf8proc" not in sh("dpkg-deb", "--field", found[0], "Depends")
    sh(*in_root(root, "apt-get", "-qq", "update"))
    sh(*in_root(root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends", "install", "/hearth.deb"))
    amd64 = os.path.join(work, "amd64")
    sh("dpkg-deb", "--extract", glob.glob(os.path.join(a.release, "hearth_*_amd64.deb"))[0], amd64)
    generate = ("generate", "--prompt", "Once upon a time", "-n", "40", "--numerics", "exact")
    here, there = sh(os.path.join(amd64, "usr/bin/hearth"), *generate), sh(*in_root(root, "hearth", *generate))
    assert here == there and len(here) > 40, (here, there)
    clock.step(f"arm64, emulated: installed; {sh(*in_root(root, 'hearth', '--version')).splitlines()[0]}; generate says what x86-64 says")


def in_root(root, *words):
    return ["chroot", root, *words]


def mounted(root):
    sh("mount", "-t", "proc", "proc", os.path.join(root, "proc"))
    sh("mount", "--rbind", "/dev", os.path.join(root, "dev"))
    return root


def answers(root, program, certificate):
    """What a user does with it: serve over HTTP and TLS, health checks, generate, chat, inspect, score."""
    said = lambda *words, text="": sh(*in_root(root, program, *words), input=text)  # noqa: E731
    with Hearth("--drain-delay-ms", "0", command=in_root(root, program, "serve", "--port", "0")) as h:
        status, _, body = h.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0})
        assert status == 200 and body["choices"][0]["message"]["content"] == "2+2: 2+2=4. The answer is 4.", body
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
        status, _, body = h.post("/v1/completions", {"prompt": "x", "max_tokens": 64, "structured_outputs": {"json": schema}})
        assert status == 200 and isinstance(json.loads(body["choices"][0]["text"])["a"], int), body
        said("healthcheck", f"http://127.0.0.1:{h.port}/readyz")
    key, cert = (os.path.join("/tls", os.path.basename(path)) for path in certificate)
    with Hearth(command=in_root(root, program, "serve", "--port", "0", "--tls-cert-file", cert, "--tls-key-file", key)) as h:
        status, _, body = h.get("/v1/models")
        assert status == 200 and body["data"][0]["id"] == "hearth-demo"
    assert said("generate", "--prompt", "Once upon a time", "-n", "8").startswith(" there was a little")
    assert "2+2=4" in said("chat", "-p", "What is 2+2?", "--temperature", "0")
    assert "LlamaForCausalLM" in said("inspect")


def tarball(a, work, clock):
    archive = glob.glob(os.path.join(a.release, "hearth-*-linux-x86_64.tar.gz"))[0]
    folder = os.path.basename(archive).replace(".tar.gz", "")
    with tempfile.TemporaryDirectory() as d:
        certificate = make_certificate(d)
        for name in ("bullseye", "bookworm", "trixie"):
            root = mounted(fresh_root(a, name, work))
            shutil.copytree(d, os.path.join(root, "tls"))
            sh("tar", "-xzf", archive, "-C", os.path.join(root, "opt"))
            program = f"/opt/{folder}/bin/hearth"
            libc = sh(*in_root(root, "ldd", "--version")).split("\n")[0].split()[-1]
            if name == "bullseye":
                p = subprocess.run(in_root(root, program, "--version"), capture_output=True, text=True, check=False, timeout=60)
                assert p.returncode != 0 and "GLIBC_" in p.stderr, p
            else:
                answers(root, program, certificate)
                clock.step(f"{name}, glibc {libc}: bin/hearth")
            answers(root, program + "-older", certificate)
            clock.step(f"{name}, glibc {libc}: bin/hearth-older" + (", as bin/hearth says that glibc is too old" if name == "bullseye" else ""))


def wheel(a, work, clock):
    path = glob.glob(os.path.join(a.release, "hearth-*.whl"))[0]
    folder = os.path.join(work, "venv")
    venv.create(folder, with_pip=True)
    sh(os.path.join(folder, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-index", path)
    for command in ([os.path.join(folder, "bin", "hearth")], [os.path.join(folder, "bin", "python"), "-m", "hearth"]):
        with Hearth("--drain-delay-ms", "0", command=[*command, "serve", "--port", "0"]) as h:
            assert h.get("/v1/models")[2]["data"][0]["id"] == "hearth-demo"
    sh(os.path.join(folder, "bin", "pip"), "uninstall", "--quiet", "--yes", "hearth")
    assert not glob.glob(os.path.join(folder, "lib", "*", "site-packages", "hearth*"))
    clock.step("the wheel in a virtual environment: `hearth serve` and `python -m hearth serve` answer; uninstalled")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release")
    parser.add_argument("--roots", help="keep fresh roots here")
    parser.add_argument("--mirror", help="of Debian, for debootstrap")
    a = parser.parse_args()
    a.release = os.path.abspath(a.release)
    if os.environ.get("HEARTH_OWN_MOUNTS") != "1":  # its mounts end with it
        os.environ["HEARTH_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    sh("sha256sum", "--quiet", "-c", "SHA256SUMS", cwd=a.release)
    if a.roots:
        a.roots = os.path.abspath(a.roots)
        os.makedirs(a.roots, exist_ok=True)
    clock = Clock()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        deb_life(a, work, clock)
        debs_by_name(a, work, clock)
        wheel(a, work, clock)
        try:
            arm64_deb(a, work, clock)
            tarball(a, work, clock)
        finally:
            for root in glob.glob(os.path.join(work, "*", "proc")):
                for place in (root, os.path.join(os.path.dirname(root), "dev")):
                    subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
    print("passed")


if __name__ == "__main__":
    main()
