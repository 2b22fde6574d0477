"""What-if questions about a cluster: nodes that are drained or lost, and nodes that would have to be added."""
