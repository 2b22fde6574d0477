"""HTTP for all programs: addresses, and for servers one listener, one set-up of TLS, one set of messages.

    addresses         loopback addresses, and the proxy to a server by the environment
    messages          users, requests, responses, failures as Kubernetes Status objects, and handlers by path
    aiohttp_messages  requests from and responses to aiohttp
    listener          sockets and connections, and the limits on them
    tls               serving certificates and client CAs, both reloaded while a server runs
    certificates      certificate authorities, and the certificates they issue

The secure port (:mod:`kubestow.serving`), the extender (:mod:`kubestow.extender`) and the API server of the development
cluster are built on it. Nothing here knows what is served.
"""
