"""Secure serving: the HTTPS port of a scheduler (semantics 1.4), and of the descheduler.

    secure_server     the port of one component: TLS, authentication, authorization, the handlers of its paths
    options           serving options with kube-scheduler's defaults
    delegated_auth    authentication, authorization, and the reviews at the API server that they are delegated to
    trust_reloader    keeps the accepted client CAs and the serving certificates up to date
    routes            the paths of a scheduler and their handlers, which are in:
    healthz           health checks
    zpages            /configz, /flagz and /statusz
    debug             the queue, the cache, and why a pod is pending
    dashboard_handler  the dashboard
    dashboard_socket  the dashboard alone, on the Unix socket of a development cluster

The listener and TLS are :mod:`kubestow.http`'s. The time and memory that one client can use are bounded, and no
response contains internal errors.
"""
