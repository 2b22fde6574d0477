"""The load-aware plugin of crane-scheduler.

dynamic          Dynamic: rejects nodes whose load is above a limit, and prefers nodes with little load
policy           the DynamicSchedulerPolicy, which names the metrics, limits and weights
annotations      the load of nodes, which crane's controller writes to their annotations
"""
