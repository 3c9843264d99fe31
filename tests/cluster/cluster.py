# SPDX-License-Identifier: MIT
"""A Kubernetes cluster of one node, started program by program: etcd, API server, controller manager, scheduler,
containerd, kubelet, kube-proxy. For use inside sandbox.py.

    with Cluster(programs, work) as c:
        c.apply("-k", folder)
        c.wait_until("pods are ready", lambda: ...)
"""
import json
import os
import shutil
import subprocess
import time

from sandbox import NODE_ADDRESS

NODE = "node"
API = f"https://{NODE_ADDRESS}:6443"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
PODS = "10.244.0.0/24"
TOKENS = {"admin": "system:masters", "controllers": "system:masters", f"system:node:{NODE}": "system:nodes"}


class Failed(Exception):
    """A check that does not hold, or a cluster that does not come up; the text says which."""


class Cluster:
    """programs: the folder of the binaries; work: a folder for everything that is written."""

    def __init__(self, programs, work):
        self.programs, self.work = programs, work
        self.processes = {}
        self.kubeconfig = self.path("admin.kubeconfig")

    def __enter__(self):
        try:
            self.boot()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind, value, trace):
        self.stop()

    # ---- files ----------------------------------------------------------------------------------

    def path(self, *names):
        return os.path.join(self.work, *names)

    def write(self, name, value):
        """Writes text, or anything else as JSON, into a file of the work folder; returns its path."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
        return path

    def program(self, name):
        path = os.path.join(self.programs, name)
        found = path if os.path.exists(path) else shutil.which(name)
        if not found:
            raise Failed(f"no program {name}: neither in {self.programs} nor in PATH")
        return found

    def make_certificate(self):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/CN=kube-apiserver", "-keyout", self.path("tls.key"), "-out",
             self.path("tls.crt"), "-addext",
             f"subjectAltName=IP:{NODE_ADDRESS},IP:{API_SERVICE},IP:127.0.0.1,DNS:kubernetes.default.svc"],
            check=True, capture_output=True)

    def write_kubeconfig(self, name, user):
        return self.write(name, {
            "apiVersion": "v1", "kind": "Config", "current-context": "trial",
            "clusters": [{"name": "trial", "cluster": {"server": API, "certificate-authority": self.path("tls.crt")}}],
            "users": [{"name": user, "user": {"token": "token-" + user}}],
            "contexts": [{"name": "trial", "context": {"cluster": "trial", "user": user}}]})

    # ---- programs -------------------------------------------------------------------------------

    def start(self, name, *arguments, env=None):
        """Starts a program in the background; its output goes into logs/NAME."""
        os.makedirs(self.path("logs"), exist_ok=True)
        with open(self.path("logs", name), "w", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen(
                [self.program(name), *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=dict(os.environ, **(env or {})), start_new_session=True)

    def log(self, name, lines=15):
        with open(self.path("logs", name), encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def stop(self):
        """Ends the programs; what they started ends with the process namespace."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes = {}

    def check_alive(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise Failed(f"{name} ended with {process.returncode}:\n{self.log(name)}")

    def wait_until(self, what, condition, timeout=120, interval=0.2):
        """Returns the condition's first true value."""
        deadline = time.monotonic() + timeout
        while True:
            self.check_alive()
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise Failed(f"not within {timeout} s: {what}")
            time.sleep(interval)

    # ---- kubectl --------------------------------------------------------------------------------

    def try_kubectl(self, *arguments, stdin="", timeout=300):
        """(status, output and errors) of kubectl."""
        p = subprocess.run([self.program("kubectl"), "--kubeconfig", self.kubeconfig, *arguments], text=True,
                           input=stdin, capture_output=True, timeout=timeout, check=False)
        return p.returncode, p.stdout + p.stderr

    def kubectl(self, *arguments, **options):
        status, output = self.try_kubectl(*arguments, **options)
        if status:
            raise Failed(f"kubectl {' '.join(arguments)} exits with {status}:\n{output[-3000:]}")
        return output

    def get(self, *arguments):
        return json.loads(self.kubectl("get", "-o", "json", *arguments))

    # ---- booting --------------------------------------------------------------------------------

    def boot(self):
        self.make_certificate()
        self.write("tokens.csv", "".join(f'token-{user},{user},{user},"{group}"\n' for user, group in TOKENS.items()))
        self.write_kubeconfig("admin.kubeconfig", "admin")
        controllers = self.write_kubeconfig("controllers.kubeconfig", "controllers")
        self.start_containerd()
        self.start("etcd", "--data-dir", self.path("etcd"), "--log-level", "error")
        self.start_api_server()
        self.wait_until("the API server answers", lambda: self.try_kubectl("get", "--raw", "/readyz")[0] == 0, 60)
        self.start("kube-controller-manager", "--kubeconfig", controllers, "--leader-elect=false",
                   "--root-ca-file", self.path("tls.crt"), "--service-account-private-key-file", self.path("tls.key"),
                   "--horizontal-pod-autoscaler-sync-period=2s")
        self.start("kube-scheduler", "--kubeconfig", controllers, "--leader-elect=false")
        self.start_kubelet()
        self.start_proxy(controllers)
        self.wait_until("the node is ready", self.node_is_ready, 60)
        self.wait_until("the default service account exists",
                        lambda: self.try_kubectl("get", "serviceaccount", "default")[0] == 0, 60)

    def start_api_server(self):
        self.start(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--advertise-address={NODE_ADDRESS}",
            f"--service-cluster-ip-range={SERVICES}", f"--tls-cert-file={self.path('tls.crt')}",
            f"--tls-private-key-file={self.path('tls.key')}", f"--token-auth-file={self.path('tokens.csv')}",
            "--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.path('tls.key')}",
            f"--service-account-key-file={self.path('tls.crt')}", "--kubelet-preferred-address-types=InternalIP",
            "--feature-gates=ImageVolume=true")

    def start_containerd(self):
        self.write("cni/10-pods.conflist", {
            "cniVersion": "0.4.0", "name": "pods", "plugins": [
                {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]],
                                         "routes": [{"dst": "0.0.0.0/0"}]}}]})
        config = self.write("containerd.toml", f"""version = 2
root = "{self.path('containerd')}"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:trial"
  stream_server_address = "127.0.0.1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{self.snapshotter()}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.path('cni')}"
""")
        self.start("containerd", "--config", config, "--log-level", "warn")
        self.wait_until("containerd answers", lambda: self.try_ctr("version") == 0, 30)

    def snapshotter(self):
        """overlayfs if this kernel has it for the work folder, else copies."""
        names = [self.path("overlay", n) for n in ("lower", "upper", "work", "merged")]
        for name in names:
            os.makedirs(name)
        options = "lowerdir={},upperdir={},workdir={}".format(*names)
        status = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, names[3]], check=False,
                                capture_output=True).returncode
        if status == 0:
            subprocess.run(["umount", names[3]], check=True)
        return "native" if status else "overlayfs"

    def try_ctr(self, *arguments):
        return subprocess.run([self.program("ctr"), "--namespace", "k8s.io", *arguments], check=False,
                              capture_output=True).returncode

    def import_image(self, path):
        if self.try_ctr("images", "import", path):
            raise Failed(f"containerd does not import {path}:\n{self.log('containerd')}")

    def start_kubelet(self):
        config = self.write("kubelet.json", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "failSwapOn": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "resolvConf": "",
            "clusterDNS": ["10.96.0.10"],  # nobody answers there; without one each pod is warned of
            "evictionHard": {"memory.available": "50Mi"}, "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False, "nodeStatusUpdateFrequency": "5s",
            "serializeImagePulls": False, "syncFrequency": "10s"})
        self.start("kubelet", "--config", config, "--kubeconfig",
                   self.write_kubeconfig("kubelet.kubeconfig", f"system:node:{NODE}"), "--hostname-override", NODE,
                   "--node-ip", NODE_ADDRESS, "--root-dir", self.path("kubelet"))

    def start_proxy(self, kubeconfig):
        config = self.write("kube-proxy.json", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "clientConnection": {"kubeconfig": kubeconfig}, "hostnameOverride": NODE, "clusterCIDR": PODS,
            "conntrack": {"maxPerCore": 0, "min": 0}, "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"}})
        self.start("kube-proxy", "--config", config)

    def node_is_ready(self):
        status, output = self.try_kubectl("get", "node", NODE, "-o", "json")
        if status:
            return False
        conditions = json.loads(output)["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
