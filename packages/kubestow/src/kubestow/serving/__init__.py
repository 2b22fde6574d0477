"""Secure serving: the HTTPS port of a scheduler (semantics 1.4).

    secure_server   the port of one scheduler, composed of the modules below
    options         serving options with kube-scheduler's defaults
    tls             serving certificates and client CAs, both reloaded while the server runs
    listener        sockets, connections, and the limits on them
    connection_table  which connection is closed for a new one
    handler_chain   authentication, authorization, routing: the path of a request
    mux             handlers by path
    routes          the paths of a scheduler and their handlers
    dashboard_socket  the Unix socket of a development cluster's dashboard
    dashboard_server  the dashboard alone, on such a socket
    aiohttp_messages  requests from and responses to aiohttp
    http_messages   requests and responses, independent of the HTTP library
    auth            delegating authentication and authorization
    handlers        healthz, z-pages, debug endpoints, dashboard

The time and memory that one client can use are bounded, and no response contains internal errors.
"""
