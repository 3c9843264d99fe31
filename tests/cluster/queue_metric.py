# SPDX-License-Identifier: MIT
"""A small stand-in for a metrics adapter: serves the external metrics API with one metric, hearth_sequences_waiting,
the sum over the pods. Real clusters have prometheus-adapter or KEDA in this place.

    with QueueMetric(address, port, certificate, key, lambda: [pod address, ...]): ...
"""
import datetime
import http.client
import http.server
import json
import re
import ssl
import threading

METRIC = "hearth_sequences_waiting"
GROUP = "external.metrics.k8s.io/v1beta1"


def read_metric(address, name, port=9090):
    """One value from a pod's metrics port; 0 if the pod does not answer."""
    connection = http.client.HTTPConnection(address, port, timeout=2)
    try:
        connection.request("GET", "/metrics")
        found = re.search(rf"^{name} (\S+)$", connection.getresponse().read().decode(), re.M)
        return float(found.group(1)) if found else 0.0
    except (OSError, http.client.HTTPException):
        return 0.0
    finally:
        connection.close()


class QueueMetric:
    def __init__(self, address, port, certificate, key, pods):
        metric = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(metric.document(self.path.split("?")[0]))

            def answer(self, document):
                data = json.dumps(document or {}).encode()
                self.send_response(200 if document else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self.pods = pods
        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def document(self, path):
        if path == f"/apis/{GROUP}":
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": [
                {"name": METRIC, "namespaced": True, "singularName": "", "kind": "ExternalMetricValueList",
                 "verbs": ["get"]}]}
        if re.fullmatch(rf"/apis/{GROUP}/namespaces/[a-z0-9-]+/{METRIC}", path):
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            value = sum(read_metric(pod, METRIC) for pod in self.pods())
            return {"kind": "ExternalMetricValueList", "apiVersion": GROUP, "metadata": {}, "items": [
                {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": str(int(value))}]}
        return None
