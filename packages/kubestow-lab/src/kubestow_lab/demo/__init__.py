"""The demo: a simulated cluster over HTTP, a scheduler, a workload, and a report."""
