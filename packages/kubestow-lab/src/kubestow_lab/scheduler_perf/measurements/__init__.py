"""What is measured: when pods were bound, the scheduler's metrics, and the CPU time and memory of its process."""
