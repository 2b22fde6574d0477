"""The rehearsal of moves: pods leave their nodes in a simulated cluster, and the engine places their replacements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np

from kubestow.api.core import Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.simulation import Simulation
from kubestow.engine.cluster_api.replacements import ClaimsOfEviction
from kubestow.engine.pipeline.offline_scheduler import unbound
from kubestow.engine.placement.engine_placement import Assignment, EnginePlacement
from kubestow.framework.profile import Profile


class Rehearsal:
    """Moves pods in a cluster, which is as before when the ``with`` block ends.

    Replacements go where the scheduler puts them, but never to the ``closed`` nodes, nor, if it ``closes_sources``, to
    one that a pod leaves in the same step. A pod does not leave a node then in the step in which another one came
    there: that node would have been closed to the other.
    """

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, Profile],
        closed: Iterable[str] = (),
        *,
        closes_sources: bool = True,
    ) -> None:
        self._cluster, self._engine, self._closes_sources = cluster, EnginePlacement(cluster, profiles), closes_sources
        self._open = np.ones(len(cluster.nodes), np.bool_)
        self._open[[cluster.nodes.rows[name] for name in closed]] = False
        self._left: set[str] = set()
        self._reached: set[str] = set()
        self._placed: list[Assignment] = []
        self._claims: list[ClaimsOfEviction] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._simulation: Simulation = self._stack.enter_context(self._cluster.simulate())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._engine.give_back_reservations(self._placed)
        for claims in reversed(self._claims):
            claims.undo()
        self._stack.close()

    def begin_step(self, sources: Iterable[str] = ()) -> None:
        """Begin a step, in which replacements go neither to ``sources`` nor to the nodes that pods leave until then."""
        self._left, self._reached = set(sources), set()

    def move(self, pod: Pod) -> str:
        """Move a pod away from its node: the name of the node that it gets, "" if there is none in this step.

        Its claims for devices are released, and allocated anew for where it goes. A pod that gets no node stays. Raises
        PluginError.
        """
        uid, source, others = pod.metadata.uid, pod.spec.node_name, self._open
        if self._closes_sources:
            if source in self._reached:
                return ""
            others = self._open.copy()
            others[[self._cluster.nodes.rows[name] for name in {*self._left, source}]] = False
        placed = self._cluster.placed_pod(uid)
        self._simulation.remove_pod(uid)
        claims = ClaimsOfEviction(self._cluster, pod)
        info = self._cluster.shapes.info(claims.create_for(unbound(pod)))
        target = self._engine.place_anywhere(info, others)
        if target:
            self._left.add(source)
            self._reached.add(target)
            self._placed.append((info, target))
            self._claims.append(claims)
        else:
            claims.undo()
            if placed is not None:
                self._simulation.add_pod(placed.info, source)
        return target
