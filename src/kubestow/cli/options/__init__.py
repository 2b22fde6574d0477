"""Options that several commands share, and the reading of what they name: cluster, workload, scheduler."""
