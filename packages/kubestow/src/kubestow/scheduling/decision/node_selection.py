"""Selecting one of the nodes with the highest total score (semantics 5.7)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster

__all__ = ["FirstByName", "RandomTie", "TieBreak"]


class TieBreak(Protocol):
    """Chooses among the nodes with the highest score."""

    def choose(self, cluster: Cluster, rows: NDArray[np.intp]) -> int:
        """One of the rows (intp, at least two)."""


@dataclass(frozen=True, slots=True)
class RandomTie:
    """Each of the best nodes has the same chance, by the injected random source."""

    random: Random

    def choose(self, cluster: Cluster, rows: NDArray[np.intp]) -> int:
        """A random row."""
        return int(rows[self.random.randrange(len(rows))])


@dataclass(frozen=True, slots=True)
class FirstByName:
    """The first of the best nodes by name, as recorded decisions assume."""

    def choose(self, cluster: Cluster, rows: NDArray[np.intp]) -> int:
        """The row whose node name sorts first."""
        return int(rows[cluster.nodes.name_rank()[rows].argmin()])
