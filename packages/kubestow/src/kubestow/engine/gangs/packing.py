"""Packing: a first solution for the pods of a gang, without a model.

Kinds with the largest requests come first, each on the nodes that it leaves the least of. Where pods of the gang
exclude or attract each other, or share host ports, there is no such solution.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.engine.gangs.gang_problem import GangProblem

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]


def best_fit(problem: GangProblem, within: Mask) -> Amounts | None:
    """As many pods as fit on some nodes (``within``, bool per node), int64 (kinds, nodes); None where pods interact."""
    if not problem.are_pods_independent:
        return None
    totals = {name: max(1, int(free[within].sum())) for name, free in problem.free.items()}
    shares = [
        max((amount / totals[name] for name, amount in kind.requests.items()), default=0.0) for kind in problem.kinds
    ]
    free = {name: amounts.copy() for name, amounts in problem.free.items()}
    slots = problem.slots.copy()
    placed = np.zeros((len(problem.kinds), len(problem.node_names)), np.int64)
    for number in sorted(range(len(problem.kinds)), key=lambda number: -shares[number]):
        kind = problem.kinds[number]
        room = np.where(within, np.minimum(slots, problem.capacity(number)), 0)
        for name, amount in kind.requests.items():
            room = np.minimum(room, free[name] // amount)
        rows = np.flatnonzero(room)
        left = np.zeros(len(rows))
        for name, amount in kind.requests.items():
            left += (free[name][rows] - room[rows] * amount) / totals[name]
        rows = rows[np.argsort(left, kind="stable")]
        before = np.cumsum(room[rows]) - room[rows]
        placed[number, rows] = np.clip(len(kind.pods) - before, 0, room[rows])
        for name, amount in kind.requests.items():
            free[name] -= placed[number] * amount
        slots -= placed[number]
    return placed
