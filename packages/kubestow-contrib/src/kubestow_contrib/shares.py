"""Arithmetic of shares: amounts by resource, the division of a total by weights, and dominant shares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.errors import InvalidQuantity

Amounts = Mapping[str, int]
"""Amounts by resource: millicores, bytes or counts; ``pods`` is a resource, too."""

AmountVector = NDArray[np.float64]

#: Amounts that differ by less are equal: deserved amounts are fractions, and rounded.
TOLERANCE = 1e-3


def amounts_of(quantities: Mapping[str, Quantity] | None, path: str) -> dict[str, int]:
    """Quantities as integers. Raises InvalidQuantity, with the path of the field, for one that is malformed or
    negative."""
    amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            amounts[name] = millis(quantity) if name == "cpu" else units(quantity)
        except InvalidQuantity as error:
            raise InvalidQuantity(error.problem, path=f"{path}.{name}") from None
        if amounts[name] < 0:
            raise InvalidQuantity(f"is {quantity}, expected at least 0", path=f"{path}.{name}")
    return amounts


def water_fill(
    total: AmountVector, weights: NDArray[np.float64], lower: AmountVector, upper: AmountVector
) -> AmountVector:
    """The deserved amounts (queues by resources): ``total`` (resources) divided by ``weights`` (queues, positive).

    Each queue gets at least its ``lower`` and at most its ``upper`` amount (queues by resources; an upper amount below
    the lower one counts as that). Between them all queues are filled to one level per weight, the highest at which the
    sum does not exceed the total. So only a lower amount can put a queue above the level of another that lacks
    something. If the lower amounts exceed the total, they are the result.
    """
    upper = np.maximum(upper, lower)
    count = len(weights)
    if not count:
        return upper
    by_weight = weights[:, np.newaxis]
    # The sum of all queues as a function of the level is piecewise linear: a queue begins to rise at lower / weight,
    # and stops at upper / weight.
    edges = np.concatenate((lower / by_weight, upper / by_weight))
    slopes = np.broadcast_to(np.concatenate((by_weight, -by_weight)), edges.shape)
    order = np.argsort(edges, axis=0, kind="stable")
    edges = np.take_along_axis(edges, order, axis=0)
    slopes = np.cumsum(np.take_along_axis(slopes, order, axis=0), axis=0)
    sums = np.cumsum(np.diff(edges, axis=0) * slopes[:-1], axis=0)
    sums = lower.sum(axis=0) + np.concatenate((np.zeros((1, len(total))), sums))
    last = np.maximum((sums <= total).sum(axis=0) - 1, 0)
    columns = np.arange(len(total))
    slope = slopes[last, columns]
    rest = np.maximum(total - sums[last, columns], 0.0)
    level = edges[last, columns] + np.divide(rest, slope, out=np.zeros_like(rest), where=slope > 0)
    deserved: AmountVector = np.clip(level * by_weight, lower, upper)
    return deserved


def dominant_share(allocated: Mapping[str, float], of: Mapping[str, float]) -> float:
    """The largest fraction that is allocated of any resource in ``of``; 1 where something is allocated of nothing."""
    share = 0.0
    for name, whole in of.items():
        amount = allocated.get(name, 0)
        if amount > 0:
            share = max(share, amount / whole if whole > 0 else 1.0)
    return share
