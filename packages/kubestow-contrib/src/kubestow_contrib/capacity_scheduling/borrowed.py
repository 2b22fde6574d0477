"""Which pods give back what their namespaces borrow.

A namespace that uses more than its minimum loses pods to those that are guaranteed what it uses. As upstream has it,
each node is considered by itself: from every namespace so many of the node's pods may be evicted, the least important
first, until what the namespace uses is no longer above its minimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.pods.table import PodChanges
from kubestow_contrib.capacity_scheduling.elastic_quotas import ElasticQuotas

__all__ = ["using_borrowed"]


def using_borrowed(quotas: ElasticQuotas, pods: PodChanges, *, lender: str) -> NDArray[np.bool_]:
    """The pods of some nodes that may be evicted for a pod of the namespace ``lender``, bool per pod."""
    found = np.zeros(len(pods.slots), np.bool_)
    above = {namespace: amounts for namespace, amounts in quotas.above_min.items() if namespace != lender}
    numbers = {namespace: number for number, namespace in enumerate(above, start=1)}
    number_of = pods.values_of(lambda shape: numbers.get(shape.namespace, 0))
    positions = np.flatnonzero(number_of)
    priority, start_time = pods.table.priority[pods.slots[positions]], pods.table.start_time[pods.slots[positions]]
    positions = positions[np.lexsort((-start_time, priority, number_of[positions], pods.row_of[positions]))]
    slots, rows, numbers_of = pods.slots[positions], pods.row_of[positions], number_of[positions]
    # Consecutive pods of one namespace on one node are evicted one after the other.
    is_first = np.ones(len(positions), np.bool_)
    is_first[1:] = (rows[1:] != rows[:-1]) | (numbers_of[1:] != numbers_of[:-1])
    run_of = np.cumsum(is_first) - 1
    for resource in {name for amounts in above.values() for name in amounts}:
        requested = pods.table.requested(resource)[slots]
        evicted_before = np.cumsum(requested) - requested
        evicted_before -= evicted_before[is_first][run_of]
        amounts = np.array([0, *(amounts.get(resource, 0) for amounts in above.values())], np.int64)
        found[positions] |= amounts[numbers_of] > evicted_before
    return found
