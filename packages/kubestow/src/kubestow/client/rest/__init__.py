"""HTTP requests to an API server.

transport        requests and watch streams over persistent connections, limited in number (QPS and burst); failures
                 become APIError or Unreachable
server_connection  one HTTP/1.1 connection: a request at a time, its response parsed by httptools
connection_pool  connections to one server, opened on demand, directly or through the proxy of the environment
credentials      server address, TLS and headers, kept fresh: in-cluster, or from a kubeconfig
kubeconfig       kubeconfig files: read, merged, validated
"""
