"""kube-scheduler's own integration behaviours (reference 11) over HTTP: scheduler, client and embedded API server."""
