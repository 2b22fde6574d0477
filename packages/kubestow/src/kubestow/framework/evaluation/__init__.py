"""The evaluation of a pod on all nodes: feasible nodes, scores, and what is kept of them for pods of the same shape."""
