"""What papers publish: numbers, of which a measured one may differ by a tolerance, and trends between two policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The greatest difference to a published number that needs no explanation.

    It is in the unit of the numbers, or ``relative`` in percent of the published one. ``unit`` is for people.
    """

    amount: float
    unit: str = "percentage points"
    relative: bool = False

    def allows(self, difference: float, published: float) -> bool:
        """Whether a measured number may differ by so much from the published one."""
        return abs(difference) <= (self.amount * abs(published) / 100 if self.relative else self.amount)

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}"


class Relation(StrEnum):
    """How one number is said to be relative to another."""

    BELOW = "below"
    ABOVE = "above"


@dataclass(frozen=True, slots=True)
class Trend:
    """That a policy's number is below or above the number of another policy on the same workload."""

    relation: Relation
    policy: str

    def is_followed_by(self, difference: float) -> bool:
        """Whether the difference to the other policy has the sign that is claimed."""
        return difference < 0 if self.relation is Relation.BELOW else difference > 0

    def __str__(self) -> str:
        return f"{self.relation} {self.policy}"


def below(policy: str) -> Trend:
    """The trend that a number is below that of a policy."""
    return Trend(Relation.BELOW, policy)


def above(policy: str) -> Trend:
    """The trend that a number is above that of a policy."""
    return Trend(Relation.ABOVE, policy)


Published: TypeAlias = Mapping[tuple[str, str], float | Trend]
"""Numbers and trends by workload and policy."""
