"""When jobs will start, as the packages forecast it that know their queues.

A package registers a :class:`Forecaster` under the entry point group ``kubestow.forecasts``, by the name of its plugin
or queue system. All of them are asked, and the first that knows a job answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from kubestow.api.core import Pod
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError, UnknownJob
from kubestow.reports.model import Table, counted
from kubestow.reports.text import Displayed

_ENTRY_POINT_GROUP = "kubestow.forecasts"


#: So many nodes of a remedy are named to people.
_MOST_NODES = 5


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change with which a job would start now; verified by what decides about its start.

    ``nodes`` are the numbers of pods on the nodes that they would get, ``flavors`` the kinds of nodes, as far as they
    are known.
    """

    change: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    flavors: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The nodes or flavors, for people."""
        named = [f"{name} ({count:,})" if count > 1 else name for name, count in sorted(self.nodes.items())]
        named = named or [f"flavor {name}" for name in self.flavors]
        more = f" and {counted(len(named) - _MOST_NODES, 'more node')}" if len(named) > _MOST_NODES else ""
        return ", ".join(named[:_MOST_NODES]) + more

    def document(self) -> dict[str, Any]:
        """The remedy as data for JSON and YAML."""
        return {"change": self.change, "nodes": dict(self.nodes), "flavors": list(self.flavors)}


def remedy_table(remedies: Sequence[Remedy]) -> Table:
    """The changes, each with where the pods would be."""
    table = Table("it would start now with", "on", right=())
    for remedy in remedies:
        table.add(remedy.change, remedy.where)
    return table


class ForecastAnswer(Displayed):
    """An answer about jobs; ``remarks`` say for people what was assumed."""

    __slots__ = ()
    remarks: Sequence[str]

    def document(self) -> dict[str, Any]:
        """The answer as data for JSON and YAML."""
        raise NotImplementedError

    @property
    def waits(self) -> bool:
        """Whether the jobs wait for the queues that answer; True by default."""
        return True

    def why_not_yet(self) -> Mapping[str, str]:
        """Why each job that waits does not start, by its name; none by default."""
        return {}

    def would_start_now(self) -> Mapping[str, Sequence[Remedy]]:
        """The changes with which each job that waits would start now, by its name; none by default."""
        return {}


Forecaster = Callable[[ClusterObjects, Sequence[Pod], SchedulerOptions, str], ForecastAnswer]
"""Forecasts when the jobs of some pods of a cluster start; the text is what the jobs are called in messages.

Raises UnknownJob if its queues do not have them."""


def forecast_jobs(
    cluster: ClusterObjects, pods: Sequence[Pod], options: SchedulerOptions, name: str
) -> tuple[str, ForecastAnswer]:
    """The answer about the jobs of some pods, after the name of what has them in its queues.

    Raises UnknownJob, with the reason of each, if nothing has them; InputError if nothing that forecasts is installed,
    or cannot be loaded.
    """
    found = sorted(entry_points(group=_ENTRY_POINT_GROUP), key=lambda each: each.name)
    if not found:
        raise InputError(name, "to forecast when jobs start, install kubestow-contrib")
    reasons = {}
    for entry_point in found:
        try:
            forecaster: Forecaster = entry_point.load()
        except Exception as error:
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
            raise InputError(f"entry point {entry_point.name} ({entry_point.value})", problem) from error
        try:
            return entry_point.name, forecaster(cluster, pods, options, name)
        except UnknownJob as error:
            reasons[entry_point.name] = error.problem
    if len(reasons) == 1:
        raise UnknownJob(name, *reasons.values())
    raise UnknownJob(name, "; ".join(f"{system}: {reason}" for system, reason in reasons.items()))
