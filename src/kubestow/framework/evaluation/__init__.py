"""Filtering and scoring of all nodes for a pod, with cached plugin results.

result_cache      what one plugin returned for pods of one signature; refreshed where the cluster has changed
filter_runner     runs the Filter plugins of a cycle on hypothetical nodes, and on nominated ones
evaluation        the results of all plugins for pods of one shape: the feasible nodes, their scores, the diagnosis
evaluation_cache  the evaluations of a profile by shape
"""
