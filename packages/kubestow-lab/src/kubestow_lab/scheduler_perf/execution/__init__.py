"""The execution of a workload's operations on a cluster."""
