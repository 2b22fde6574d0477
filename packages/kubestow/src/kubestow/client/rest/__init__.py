"""HTTP requests to an API server.

transport        requests and watch streams over persistent connections; failures become APIError or Unreachable
connection       one HTTP/1.1 connection: a request at a time, its response parsed by httptools
connection_pool  connections to one server, opened on demand, directly or through a proxy
rate_limiter     the client-side limit on requests (QPS and burst)
credentials      server address, TLS and headers, kept fresh: in-cluster, or from a kubeconfig
kubeconfig       kubeconfig files: read, merged, validated
proxies          the proxy variables of the environment
api_status       the v1.Status in which the API server explains a failure
"""
