"""Filtering and scoring of all nodes for a pod, with cached plugin results.

Each module builds on those before it:

    result_cache      what one plugin returned for pods of one signature; refreshed where the cluster has changed
    filter_runner     runs the Filter plugins of a cycle on hypothetical nodes, and on nodes with nominated pods
    feasibility       the feasible nodes of a pod, and the diagnosis of the others
    ranking           the feasible nodes and the totals, kept from cycle to cycle
    evaluation        the results of all plugins for pods of one group: the feasible nodes, their scores, the diagnosis
    evaluation_cache  the evaluations of a profile by group of shapes
    pod_capacity      how many copies of a pod fit on each node
"""
