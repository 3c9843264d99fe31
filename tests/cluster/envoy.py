# SPDX-License-Identifier: MIT
"""Envoy's configuration for one InferencePool, as a gateway that implements the extension would write it: the
endpoint picker reads each request and names the pod in a header, and the request goes there."""

TYPES = "type.googleapis.com/envoy."
HEADER = "x-gateway-destination-endpoint"
HTTP2 = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
    "@type": TYPES + "extensions.upstreams.http.v3.HttpProtocolOptions",
    "explicit_http_config": {"http2_protocol_options": {}}}}


def socket_address(address):
    return {"socket_address": {"address": address[0], "port_value": address[1]}}


def configuration(listen, picker):
    """listen, picker: (address, port)."""
    to_picker = {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": TYPES + "extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "10s"},
            "failure_mode_allow": False,
            "message_timeout": "10s",
            "processing_mode": {
                "request_header_mode": "SEND", "response_header_mode": "SEND",
                "request_body_mode": "FULL_DUPLEX_STREAMED", "response_body_mode": "FULL_DUPLEX_STREAMED",
                "request_trailer_mode": "SEND", "response_trailer_mode": "SEND"}}}
    router = {"name": "envoy.filters.http.router",
              "typed_config": {"@type": TYPES + "extensions.filters.http.router.v3.Router"}}
    manager = {
        "@type": TYPES + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "hearth",
        "route_config": {"virtual_hosts": [{"name": "hearth", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "pods", "timeout": "0s"}}]}]},
        "http_filters": [to_picker, router]}
    pods = {"name": "pods", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "2s",
            "original_dst_lb_config": {"use_http_header": True, "http_header_name": HEADER}}
    picker_cluster = {
        "name": "picker", "type": "STATIC", "connect_timeout": "2s", "typed_extension_protocol_options": HTTP2,
        "load_assignment": {"cluster_name": "picker", "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": socket_address(picker)}}]}]},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
            "@type": TYPES + "extensions.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {}}}}
    return {"static_resources": {
        "listeners": [{"name": "hearth", "address": socket_address(listen), "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}],
        "clusters": [pods, picker_cluster]}}
