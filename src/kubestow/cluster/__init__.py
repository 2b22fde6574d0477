"""What the scheduler knows of the cluster: columns over nodes, a table of pods, counters, and the cache over them."""
