"""The main job on an embedded default: a simulated cluster over HTTP, the scheduler on it, a workload, a summary."""
