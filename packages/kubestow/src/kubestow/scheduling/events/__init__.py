"""Watch events: the handlers that update cache and queue, and the cluster events they raise (semantics 6.9)."""
