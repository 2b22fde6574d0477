"""Partitions: several active schedulers on one cluster, each with pods to place and nodes to bind to of its own."""
