# SPDX-License-Identifier: MIT
"""What a cluster with Hearth must do. Each check takes a Trial and returns one line with its figures, or raises
Failed."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import envoy
from cluster import NODE, Failed
from queue_metric import GROUP, QueueMetric, read_metric
from sandbox import NODE_ADDRESS
from traffic import KEY, Conversations, Load, Stream

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from fake_hub import FakeHub  # noqa: E402

SELECTOR = "app.kubernetes.io/name=hearth,app.kubernetes.io/component=server"
NAMESPACE = "hearth"
ENVOY = ("127.0.0.1", 8081)
QUEUE_METRIC_PORT = 6444
SMALL = {"cpu": "50m", "memory": "128Mi"}  # requests of a pod, so that several fit here
KEPT_SHARE = 0.9  # of the prefix hits of one replica


class Trial:
    """The cluster, and short words for what is asked of it."""

    def __init__(self, cluster, deploy, here, definitions):
        self.cluster, self.deploy, self.here, self.definitions = cluster, deploy, here, definitions
        self.service = None

    def kubectl(self, *arguments, **options):
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments, **options)

    def state(self):
        """What kubectl shows of the namespace, for a check that failed."""
        shown = [self.cluster.try_kubectl("--namespace", NAMESPACE, *words.split())[1] for words in (
            "get pods -o wide", "get hpa,endpointslices", "events --types=Warning",
            f"logs --selector {SELECTOR} --tail=5 --prefix",
            "logs deployment/hearth-picker --tail=5")]
        return "\n".join(shown)

    def pods(self, ready_only=True):
        """{name: address} of the pods, without those that end."""
        found = self.cluster.get("--namespace", NAMESPACE, "pods", "--selector", SELECTOR)["items"]
        return {p["metadata"]["name"]: p["status"]["podIP"] for p in found
                if "deletionTimestamp" not in p["metadata"] and p["status"].get("podIP") and
                (not ready_only or is_ready(p))}

    def endpoints(self):
        """Addresses of the Service's ready endpoints."""
        slices = self.cluster.get("--namespace", NAMESPACE, "endpointslices", "--selector",
                                  "kubernetes.io/service-name=hearth")["items"]
        return {a for s in slices for e in s["endpoints"] or [] if e["conditions"].get("ready") for a in e["addresses"]}

    def scale(self, n, timeout=180):
        self.kubectl("scale", "deployment/hearth", f"--replicas={n}")
        self.wait_settled(n, timeout)

    def wait_settled(self, n, timeout=180):
        """n pods are ready, none is on its way in or out, and the endpoints are these pods."""

        def settled():
            found = self.cluster.get("--namespace", NAMESPACE, "pods", "--selector", SELECTOR)["items"]
            addresses = {p["status"].get("podIP") for p in found if is_ready(p)}
            return len(found) == n == len(addresses) and addresses == self.endpoints()

        self.cluster.wait_until(f"{n} settled pods", settled, timeout)

    def process(self, pod):
        """The process id of a pod's server, seen from here."""
        uid = self.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}").replace("-", "[-_]")
        for path in glob.glob("/proc/[0-9]*"):
            try:
                with open(path + "/cgroup", encoding="ascii") as f, open(path + "/cmdline", encoding="ascii") as g:
                    if re.search(uid, f.read()) and "hearth" in g.read().split("\0")[0]:
                        return int(os.path.basename(path))
            except OSError:  # it has just ended
                continue
        raise Failed(f"no process of pod {pod}")


def is_ready(pod):
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def require(holds, text):
    if not holds:
        raise Failed(text)


def require_none_lost(load, least=20):
    require(not load.lost, f"{len(load.lost)} of {len(load.lost) + load.n_answered} requests lost: {load.lost[:3]}")
    require(load.n_answered >= least, f"only {load.n_answered} requests were answered")


# ---- manifests ----------------------------------------------------------------------------------

def definitions_are_accepted(trial):
    """The custom resource definitions of the other projects."""
    files = sorted(glob.glob(os.path.join(trial.definitions, "*.yaml")))
    require(files, f"no definitions in {trial.definitions}")
    trial.cluster.kubectl("create", *(f"--filename={f}" for f in files))
    trial.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return f"{len(files)} definitions"


def manifests_are_strictly_valid(trial):
    """Every overlay and component: built by kustomize, a strict dry run of every object by the API server."""
    n_objects = 0
    folders = [trial.deploy + "/base", *sorted(glob.glob(trial.deploy + "/overlays/*"))]
    for component in sorted(glob.glob(trial.deploy + "/components/*")):
        folder = os.path.dirname(trial.cluster.write(f"components/{os.path.basename(component)}/kustomization.yaml", {
            "resources": [os.path.relpath(trial.deploy + "/base", trial.cluster.path("components", "x"))],
            "components": [os.path.relpath(component, trial.cluster.path("components", "x"))]}))
        folders.append(folder)
    for folder in folders:
        built = trial.cluster.kubectl("kustomize", folder)
        shown = trial.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=built)
        n = len(re.findall(r"^kind: ", built, re.M))
        lines = [line for line in shown.splitlines() if "(server dry run)" in line]
        require(n == len(lines) and "Warning" not in shown, f"{folder}: {n} objects:\n{shown}")
        n_objects += n
    return f"{n_objects} objects in {len(folders)} folders"


def pods_become_ready(trial):
    """The trial's own kustomization, under the restricted Pod Security Standard: two replicas and the picker."""
    trial.cluster.kubectl("create", "--filename", os.path.join(trial.here, "trial", "namespace.yaml"))
    trial.kubectl("create", "secret", "generic", "hearth-keys", f"--from-literal=keys={KEY}")
    shown = trial.cluster.kubectl("apply", "--server-side", "--validate=strict", "--kustomize",
                                  os.path.join(trial.here, "trial"))
    require("Warning" not in shown, shown)
    begin = time.monotonic()
    trial.kubectl("rollout", "status", "deployment/hearth", "--timeout=120s")
    trial.wait_settled(2)
    seconds = time.monotonic() - begin
    trial.kubectl("rollout", "status", "deployment/hearth-picker", "--timeout=120s")
    trial.service = (trial.kubectl("get", "service", "hearth", "-o", "jsonpath={.spec.clusterIP}"), 80)
    trial.scale(3)
    with Load(trial.service, 2) as load:
        time.sleep(1)
    require_none_lost(load, 1)
    return f"2 of 2 in {seconds:.1f} s; the Service answers"


def service_variables_do_no_harm(trial):
    """A pod that gets HEARTH_PORT=tcp://... from the Service named hearth, as enableServiceLinks does by default."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "linked"}, "spec": {
        "enableServiceLinks": True, "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "hearth", "image": "hearth:trial", "securityContext": {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "readinessProbe": {"periodSeconds": 1, "httpGet": {"path": "/readyz", "port": 8080}}}]}}
    trial.kubectl("create", "--filename=-", stdin=json.dumps(pod))
    trial.kubectl("wait", "--for=condition=Ready", "pod/linked", "--timeout=60s")
    log = trial.kubectl("logs", "linked")
    trial.kubectl("delete", "pod", "linked", "--wait=false")
    found = re.search(r"HEARTH_PORT=tcp://\S+ is ignored", log)
    require(found, f"no warning in the log:\n{log}")
    return found.group()


def documented_commands_work(trial):
    """Every command of docs/kubernetes.md, in order, with CPU requests that fit here."""
    with open(os.path.join(os.path.dirname(trial.deploy), "..", "docs", "kubernetes.md"), encoding="utf-8") as f:
        blocks = re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S)
    script = re.sub(r'requests: {cpu: "4", memory: 4Gi}', f"requests: {json.dumps(SMALL)}", "".join(blocks))
    require(len(blocks) > 5 and json.dumps(SMALL) in script, "docs/kubernetes.md has changed its form")
    folder = trial.cluster.path("reader")
    for name in ("kubernetes", "grafana", "prometheus"):
        shutil.copytree(os.path.join(os.path.dirname(trial.deploy), name), os.path.join(folder, "deploy", name))
    trial.cluster.kubectl("create", "--filename=-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "reader-model"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": "/run/model"},
            "claimRef": {"namespace": "chat", "name": "hearth-model"}}}))
    env = dict(os.environ, KUBECONFIG=trial.cluster.kubeconfig, PATH=f"{trial.cluster.programs}:{os.environ['PATH']}")
    p = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, text=True, check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400)
    require(p.returncode == 0, f"exit status {p.returncode}:\n{p.stdout[-3000:]}")
    require('"object":"chat.completion"' in p.stdout, f"no answer:\n{p.stdout[-3000:]}")
    delete_namespace(trial, "chat")
    return f"{len(re.findall(r'^(?:kubectl|curl)', script, re.M))} calls of kubectl and curl"


def patch(kind, name, *operations):
    """An entry of a kustomization's patches."""
    return {"target": {"kind": kind, "name": name}, "patch": json.dumps(
        [{"op": op, "path": path, "value": value} for op, path, value in operations])}


def init_container_pulls(trial):
    """The component model-pull, with a hub on the node in the place of huggingface.co."""
    demo = os.path.join(os.path.dirname(trial.deploy), "demo")
    names = [n for n in os.listdir(demo) if n.endswith((".json", ".safetensors"))]
    folder = trial.cluster.path("pull")
    with FakeHub(host=NODE_ADDRESS) as hub:
        hub.add("acme/demo", {n: os.path.join(demo, n) for n in names})
        trial.cluster.write("pull/kustomization.yaml", {
            "namespace": "pull", "resources": [os.path.relpath(trial.deploy + "/base", folder)],
            "components": [os.path.relpath(trial.deploy + "/components/model-pull", folder)],
            "images": [{"name": "hearth", "newTag": "trial"}],
            "patches": [
                patch("ConfigMap", "hearth-model", ("replace", "/data/MODEL", "acme/demo")),
                patch("Deployment", "hearth",
                      ("add", "/spec/template/spec/initContainers/0/env/-", {"name": "HF_ENDPOINT", "value": hub.url}),
                      ("replace", "/spec/template/spec/initContainers/0/resources/requests", SMALL),
                      ("replace", "/spec/template/spec/containers/0/resources/requests", SMALL))]})
        trial.cluster.kubectl("create", "namespace", "pull")
        trial.cluster.kubectl("-n", "pull", "create", "secret", "generic", "hearth-keys", f"--from-literal=keys={KEY}")
        trial.cluster.kubectl("apply", "--kustomize", folder)
        trial.cluster.kubectl("-n", "pull", "rollout", "status", "deployment/hearth", "--timeout=120s")
        pods = trial.cluster.get("-n", "pull", "pods", "--selector", SELECTOR)["items"]
        shown = trial.cluster.kubectl("-n", "pull", "logs", "deployment/hearth", "--container=hearth")
        n_answers = sum("/resolve/" in r.path and r.method == "GET" for r in hub.requests)
    delete_namespace(trial, "pull")
    require("acme/demo" in shown, f"another model is served:\n{shown}")
    return f"{len(pods)} pods serve acme/demo after {n_answers} files from the hub"


def delete_namespace(trial, name):
    """Its pods end at once, their requests being over."""
    trial.cluster.kubectl("delete", "namespace", name, "--wait=false")
    trial.cluster.kubectl("delete", "--namespace", name, "pods", "--all", "--now", "--wait=false")


# ---- changes under load -------------------------------------------------------------------------

def rolling_restart_loses_nothing(trial):
    before = set(trial.pods())
    with Load(trial.service) as load:
        begin = time.monotonic()
        trial.kubectl("rollout", "restart", "deployment/hearth")
        trial.kubectl("rollout", "status", "deployment/hearth", "--timeout=240s")
        trial.wait_settled(3)
        seconds = time.monotonic() - begin
    require(not before & set(trial.pods()), "a pod of before is still there")
    require_none_lost(load)
    return f"0 of {load.n_answered} requests lost in {seconds:.0f} s"


def scaling_loses_nothing(trial):
    with Load(trial.service) as load:
        trial.scale(5)
        trial.scale(2)
        trial.scale(3)
    require_none_lost(load)
    return f"3, 5, 2, 3 replicas: 0 of {load.n_answered} requests lost"


def drain_keeps_the_budget(trial):
    """kubectl drain evicts one pod, is refused the next until its replacement is ready, and loses nothing. There is one
    node, so it is made schedulable again, as if a second one were there."""
    before, fewest, refused = trial.pods(), [3], []
    with Load(trial.service) as load:
        drain = subprocess.Popen(
            [trial.cluster.program("kubectl"), "--kubeconfig", trial.cluster.kubeconfig, "drain", NODE,
             "--pod-selector", SELECTOR, "--delete-emptydir-data", "--timeout=240s"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        reader = threading.Thread(target=lambda: refused.extend(
            line for line in drain.stdout if "disruption budget" in line))
        reader.start()
        while drain.poll() is None:
            ready = set(trial.pods())
            fewest.append(len(ready))
            if len(ready) < 3:
                trial.cluster.kubectl("uncordon", NODE)
            time.sleep(0.2)
        reader.join()
        trial.cluster.kubectl("uncordon", NODE)
        trial.wait_settled(3)
    require(drain.returncode == 0, f"kubectl drain exits with {drain.returncode}")
    require(not set(before) & set(trial.pods()), "a pod of before is still there")
    require(refused, "no eviction was refused")
    require(min(fewest) >= 2, f"{min(fewest)} ready pods at one time")
    require_none_lost(load)
    return (f"{len(refused)} evictions refused by the budget, at least {min(fewest)} of 3 ready, "
            f"0 of {load.n_answered} requests lost")


# ---- pods that fail -----------------------------------------------------------------------------

def stopped_pod_leaves_the_endpoints(trial):
    name, address = sorted(trial.pods().items())[0]
    pid = trial.process(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        trial.cluster.wait_until("the stopped pod leaves the endpoints", lambda: address not in trial.endpoints(), 30)
        seconds = time.monotonic() - begin
        time.sleep(0.5)  # kube-proxy's turn
        with Load(trial.service, 2) as load:
            time.sleep(3)
    finally:
        os.kill(pid, signal.SIGCONT)
    require_none_lost(load, 2)
    trial.cluster.wait_until("it comes back", lambda: address in trial.endpoints(), 30)
    return f"after {seconds:.1f} s, then 0 of {load.n_answered} requests lost; back when it runs again"


def killed_pod_loses_its_own_streams(trial):
    pods = trial.pods()
    processes = {name: trial.process(name) for name in pods}
    streams = [Stream(trial.service, 1800) for _ in range(9)]
    for s in streams:
        s.begun.wait(30)
    running = {name: int(read_metric(address, "hearth_sequences_running")) for name, address in pods.items()}
    victim = max(running, key=running.get)
    os.kill(processes[victim], signal.SIGKILL)
    for s in streams:
        s.join()
    n_lost = sum(not s.complete for s in streams)
    trial.wait_settled(3)
    require(running[victim] > 1, f"the streams were over before a pod was killed: {running}")
    require(n_lost == running[victim], f"{n_lost} streams lost, the pod had {running[victim]} of {running}")
    return f"{n_lost} of 9 streams lost, the {running[victim]} of the killed pod, whose container is back"


# ---- gateway ------------------------------------------------------------------------------------

def gateway_keeps_prefix_hits(trial):
    """20 conversations of 5 turns: one replica alone, then picker and Envoy over three, beside the plain Service."""
    trial.wait_settled(3)
    address = trial.kubectl("get", "service", "hearth-picker", "-o", "jsonpath={.spec.clusterIP}")
    trial.cluster.start("envoy", "--config-path", trial.cluster.write(
        "envoy.json", envoy.configuration(ENVOY, (address, 9002))), "--concurrency", "1", "--log-level", "warn",
        "--disable-hot-restart")
    alone = (sorted(trial.pods().values())[0], 8080)
    with Conversations(alone, 1) as single:
        pass
    require(not single.lost, f"one replica alone loses {single.lost[:3]}")

    def answers():
        with Conversations(ENVOY, 2, n_conversations=1, n_turns=1) as probe:
            pass
        return not probe.lost

    trial.cluster.wait_until("Envoy and the picker answer", answers, 30)
    served = {n: read_metric(a, "hearth_prompt_tokens_total") for n, a in trial.pods().items()}
    with Conversations(ENVOY, 3) as pooled:
        pass
    by_pod = [int(read_metric(a, "hearth_prompt_tokens_total") - served[n]) for n, a in trial.pods().items()]
    with Conversations(trial.service, 4) as spread:
        pass
    require(not pooled.lost, f"{len(pooled.lost)} turns lost: {pooled.lost[:3]}")
    kept = pooled.share / single.share
    line = (f"{kept:.3f} of one replica's hits ({pooled.share:.3f} of {single.share:.3f} of the prompt tokens cached; "
            f"plain Service {spread.share:.3f}); prompt tokens by pod {by_pod}")
    require(kept >= KEPT_SHARE, line)
    require(min(by_pod) > 0, f"a replica had nothing to do: {line}")
    return line


def drained_replica_fails_nobody(trial):
    """A replica ends while conversations go on through the gateway."""
    with Conversations(ENVOY, 5, n_conversations=60) as conversations:
        trial.cluster.wait_until("conversations are going on", lambda: conversations.n_answered >= 20, 60, 0.05)
        victim = sorted(trial.pods())[0]
        trial.kubectl("delete", "pod", victim, "--wait=false")
        at = conversations.n_answered
    require(not conversations.lost, f"{len(conversations.lost)} turns lost: {conversations.lost[:3]}")
    require(at < conversations.n_answered, "the replica ended after the last turn")
    trial.wait_settled(3)
    return (f"0 of {conversations.n_answered} turns lost, {conversations.n_answered - at} of them after the replica "
            f"began to end; {conversations.share:.3f} of the prompt tokens cached")


# ---- autoscaler ---------------------------------------------------------------------------------

def autoscaler_follows_the_queue(trial):
    """The HorizontalPodAutoscaler with the external metrics API served by queue_metric.py."""
    trial.scale(2)
    c = trial.cluster
    trial.kubectl("patch", "hpa", "hearth", "--patch", json.dumps({"spec": {"maxReplicas": 4, "behavior": {
        "scaleDown": {"stabilizationWindowSeconds": 5, "policies": [
            {"type": "Pods", "value": 2, "periodSeconds": 5}]}}}}))
    objects = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "queue-metric"},
         "spec": {"ports": [{"port": 443, "targetPort": QUEUE_METRIC_PORT}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"name": "queue-metric", "labels": {"kubernetes.io/service-name": "queue-metric"}},
         "ports": [{"port": QUEUE_METRIC_PORT}], "endpoints": [{"addresses": [NODE_ADDRESS]}]},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
         "metadata": {"name": ".".join(reversed(GROUP.split("/")))},
         "spec": {"group": GROUP.split("/")[0], "version": GROUP.split("/")[1], "groupPriorityMinimum": 100,
                  "versionPriority": 100, "insecureSkipTLSVerify": True,
                  "service": {"name": "queue-metric", "namespace": NAMESPACE}}}]

    def replicas():
        return trial.cluster.get("--namespace", NAMESPACE, "deployment", "hearth")["spec"]["replicas"]

    addresses = []
    with QueueMetric(NODE_ADDRESS, QUEUE_METRIC_PORT, c.path("tls.crt"), c.path("tls.key"), lambda: addresses):
        addresses[:] = trial.pods().values()
        for o in objects:
            trial.kubectl("create", "--filename=-", stdin=json.dumps(o))
        c.wait_until("the HPA reads the metric", lambda: any(
            m.get("external", {}).get("current", {}).get("averageValue") == "0" for m in
            c.get("--namespace", NAMESPACE, "hpa", "hearth")["status"].get("currentMetrics") or []), 60)
        begin = time.monotonic()
        with Load(trial.service, n_clients=40, max_tokens=400) as load:
            c.wait_until("the HPA adds replicas", lambda: replicas() > 2, 60)
            up = time.monotonic() - begin
            c.wait_until("they are ready", lambda: len(trial.pods()) > 2, 60)
            most = replicas()
        begin = time.monotonic()
        c.wait_until("the HPA removes them", lambda: replicas() == 2, 120)
        down = time.monotonic() - begin
    refused = [r for r in load.lost if "status 429" not in r]
    require(not refused, f"lost: {refused[:3]}")
    return (f"2 to {most} replicas {up:.0f} s after 40 clients came, back to 2 {down:.0f} s after they left; "
            f"{load.n_answered} answered, {len(load.lost)} told to come again (429)")


CHECKS = [
    definitions_are_accepted, manifests_are_strictly_valid, documented_commands_work, init_container_pulls,
    pods_become_ready, service_variables_do_no_harm, rolling_restart_loses_nothing, scaling_loses_nothing,
    drain_keeps_the_budget, stopped_pod_leaves_the_endpoints, killed_pod_loses_its_own_streams,
    gateway_keeps_prefix_hits, drained_replica_fails_nobody, autoscaler_follows_the_queue,
]
