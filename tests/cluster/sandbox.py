# SPDX-License-Identifier: MIT
"""A place of its own for a cluster on this machine: namespaces for network, mounts, processes and cgroups.

    status = run_inside([sys.executable, "script.py", ...])        # as root; the command finds itself inside
    ...                                                            # inside:
    prepare(work)

What happens inside stays there. Every process ends with the first one, mounts and interfaces go with them, and the
cgroups are removed by run_inside. The network has no way out: loopback, one address for the node, and what the
cluster makes.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

NODE_ADDRESS = "192.168.77.1"
NAME = "hearth-cluster"
# The kubelet sets these for the whole machine. Inside, it finds a file with the value that it wants instead.
KUBELET_SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10",
                   "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
                   "kernel/keys/root_maxbytes": "25000000"}


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# ---- cgroups ------------------------------------------------------------------------------------

def hierarchies():
    """(controllers or "" for version 2, mount point, path of this process) of every cgroup hierarchy."""
    mounts = {}
    with open("/proc/self/mountinfo", encoding="ascii") as f:
        for line in f:
            left, right = line.split(" - ")
            kind, _, options = right.split()[:3]
            if kind == "cgroup":
                mounts[frozenset(options.split(",")) - {"rw", "ro", "xattr", "clone_children"}] = left.split()[4]
            elif kind == "cgroup2":
                mounts[frozenset()] = left.split()[4]
    with open("/proc/self/cgroup", encoding="ascii") as f:
        for line in f:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            point = mounts.get(frozenset(filter(None, controllers.split(","))))
            if point:
                yield controllers, point, path


def make_cgroups():
    """One cgroup per hierarchy, below this process's own; returns their folders."""
    folders = []
    for controllers, point, path in hierarchies():
        own = os.path.join(point, path.lstrip("/"))
        folder = os.path.join(own, f"{NAME}-{os.getpid()}")
        os.mkdir(folder)
        folders.append(folder)
        if controllers == "cpuset":  # a new one is empty, and takes no process
            for name in ("cpuset.cpus", "cpuset.mems"):
                with open(os.path.join(own, name), encoding="ascii") as f, \
                        open(os.path.join(folder, name), "w", encoding="ascii") as to:
                    to.write(f.read())
    return folders


def remove_cgroups(folders):
    deadline = time.monotonic() + 20
    for folder in folders:
        for path, _, _ in os.walk(folder, topdown=False):
            while True:
                try:
                    os.rmdir(path)
                    break
                except OSError:  # the last process has not left yet
                    if time.monotonic() > deadline:
                        print(f"left behind: {path}")
                        break
                    time.sleep(0.1)


def most_memory():
    """Bytes at the peak, page cache included, of everything inside; None if the kernel does not count it."""
    for path in ("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", "/sys/fs/cgroup/memory.peak"):
        if os.path.exists(path):
            with open(path, encoding="ascii") as f:
                return int(f.read())
    return None


# ---- going in -----------------------------------------------------------------------------------

def run_inside(command):
    """Runs a command in new namespaces and returns its exit status when all that it started has ended."""
    folders = make_cgroups()

    def enter():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the caller
        for folder in folders:
            with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))

    inside = ["unshare", "--net", "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child",
              "--mount-proc", *command]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    process = subprocess.Popen(inside, preexec_fn=enter)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        remove_cgroups(folders)


def mount_cgroups():
    present = list(hierarchies())
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    if all(not controllers for controllers, _, _ in present):
        run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
        leaf = "/sys/fs/cgroup/programs"  # version 2: a group with groups below it holds no processes
        os.mkdir(leaf)
        with open("/sys/fs/cgroup/cgroup.procs", encoding="ascii") as f:
            for pid in f.read().split():
                with open(os.path.join(leaf, "cgroup.procs"), "w", encoding="ascii") as to:
                    to.write(pid)
        return
    run("mount", "-t", "tmpfs", "cgroup", "/sys/fs/cgroup")
    for controllers, _, _ in present:
        if controllers:
            point = os.path.join("/sys/fs/cgroup", controllers.removeprefix("name="))
            os.mkdir(point)
            options = f"none,{controllers}" if controllers.startswith("name=") else controllers
            run("mount", "-t", "cgroup", "-o", options, "cgroup", point)


def prepare(work):
    """Inside: mounts over what the programs write to, the network. work: an empty folder, in memory from now on."""
    run("mount", "--make-rshared", "/")
    mount_cgroups()
    for folder in ("/run", "/var/lib", "/var/log", work):
        run("mount", "-t", "tmpfs", "tmpfs", folder)
    for name, value in KUBELET_SYSCTLS.items():
        own = os.path.join(work, name.replace("/", "."))
        with open(own, "w", encoding="ascii") as f:
            f.write(value + "\n")
        run("mount", "--bind", own, os.path.join("/proc/sys", name))
    run("hostname", "node")
    run("ip", "link", "set", "lo", "up")
    # The default route leads into a pair of interfaces that ends here: addresses of services need a route, and
    # whatever kube-proxy does not translate goes nowhere.
    run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    run("ip", "address", "add", NODE_ADDRESS + "/24", "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    run("ip", "link", "set", "node1", "up")
    run("ip", "route", "add", "default", "dev", "node0")
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as f:
        f.write("1")
