"""The handlers behind the paths of the secure port.

healthz    /healthz, /livez, /readyz and /metrics/slis
zpages     /configz, /flagz, /statusz
debug      /debug: the queue, the cache, and why a pod is pending
dashboard  /dashboard: the page, its event stream, and what it reads on request
"""
