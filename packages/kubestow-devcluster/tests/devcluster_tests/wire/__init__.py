"""Wire recordings of kube-apiserver v1.36.2: reading them, and replaying them against the embedded API server."""
