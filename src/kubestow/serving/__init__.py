"""Secure serving: what a scheduler answers on its own port, and to whom (semantics 1.4).

    options         what there is to choose, with kube-scheduler's defaults
    messages        a request once it is understood, and an answer before it is bytes
    tls             the server's certificates and whom clients' certificates have to come from; both may change
    authentication  who is asking: a client certificate, a bearer token, a front proxy, or anybody
    authorization   whether they may
    reviews         both questions put to an API server, and its answers remembered for a while
    lookup          what the API server says about whom to trust
    health          /healthz, /livez, /readyz and what they are made of
    pages           /configz, /flagz, /statusz
    why             /debug: the queue, the cache, and why a pod is pending
    endpoints       which path is whose, and the way a request takes to it
    server          sockets, and the limits that hold for whoever is at the other end
    serving         all of it put together for one scheduler

The requests of a stranger cost bounded time and memory, and none is told what went wrong in here.
"""
