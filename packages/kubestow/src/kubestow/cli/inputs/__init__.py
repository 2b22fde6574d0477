"""What several commands take in: clusters, workloads and schedulers, the options that name them, and their reading."""
