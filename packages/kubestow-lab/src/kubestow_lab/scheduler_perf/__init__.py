"""The benchmark: workloads in scheduler_perf's format, driven against an API server or the engine alone."""
