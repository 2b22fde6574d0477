"""The results of a simulation: what became of each pod, the cluster over time, tables and files."""
