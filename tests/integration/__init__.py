"""kube-scheduler's own integration behaviours (semantics 11) over HTTP: scheduler, client and embedded API server."""
