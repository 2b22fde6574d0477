"""What several commands take in: simulations and workloads, the options that name them, and their reading."""
