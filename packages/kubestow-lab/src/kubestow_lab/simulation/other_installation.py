"""Simulations by another installation: another version of kubestow, or of the packages that plugins are in.

Two versions of one package cannot be imported into one process. So the other one runs ``kubestow simulate`` in a
process of its own, on the same files, and its JSON document is read as a result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import RefusedPods
from kubestow_lab.simulation.outcomes import Origin, OutcomeState, PodOutcome, StartedPreemption
from kubestow_lab.simulation.plugin_failures import PluginFailure
from kubestow_lab.simulation.simulation_result import NodeState, SimulationResult
from kubestow_lab.simulation.timeline import ClusterSample, mean_over_time

#: Characters of what the other installation prints on standard error that are repeated in an error.
_MOST_REPEATED = 2000
_AMOUNTS = ("requested", "allocatable", "fragmentation")


@dataclass(frozen=True, slots=True)
class Installation:
    """A Python interpreter with kubestow, and folders, wheels or zip files whose modules take precedence.

    ``python`` is an interpreter or the folder of a virtual environment; empty for this one.
    """

    python: str = ""
    paths: tuple[str, ...] = ()

    @property
    def is_this_one(self) -> bool:
        """Whether it is the installation that runs."""
        return not self.python and not self.paths

    @property
    def name(self) -> str:
        """What differs from this installation, as it was given."""
        return ", ".join((*([self.python] if self.python else []), *self.paths))

    def simulate(self, arguments: Sequence[str], cluster: ClusterObjects) -> SimulationResult:
        """Run ``kubestow simulate`` with arguments, among them the files of ``cluster``.

        Raises InputError if the installation cannot be run, or if it prints no result.
        """
        command = [self._interpreter(), "-P", "-m", "kubestow", "simulate", *arguments, "--output", "json"]
        try:
            done = subprocess.run(command, env=self._environment(), capture_output=True, check=False)
        except OSError as error:
            raise InputError(self.python or sys.executable, f"cannot be run: {error.strerror}") from None
        try:
            return read_simulation_result(done.stdout, cluster)
        except InputError as error:
            said = done.stderr.decode(errors="replace").strip()[-_MOST_REPEATED:]
            problem = said.rpartition("\n")[2] if said else error.problem
            raise InputError(self.name, f"kubestow simulate gave no result: {problem}") from None

    def _interpreter(self) -> str:
        if not self.python:
            return sys.executable
        path = Path(self.python)
        return str(path / "bin" / "python") if path.is_dir() else self.python

    def _environment(self) -> dict[str, str]:
        """The environment; the modules of this installation are not passed on to another interpreter."""
        inherited = [] if self.python else os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths = (*(str(Path(path).absolute()) for path in self.paths), *filter(None, inherited))
        others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        return others | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


class _Summary(msgspec.Struct):
    resources: dict[str, Any]


class _Document(msgspec.Struct, rename="camel"):
    """The parts of a result that every version has."""

    run: dict[str, Any]
    summary: _Summary
    pods: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    timeline: list[dict[str, Any]]
    remarks: list[str] = []
    refused: list[dict[str, Any]] = []
    plugin_failures: list[dict[str, Any]] = []
    preemptions: list[dict[str, Any]] = []


def read_simulation_result(content: bytes, cluster: ClusterObjects) -> SimulationResult:
    """Read the JSON document of a result, of a simulation of ``cluster``. Raises InputError if it is none."""
    try:
        found = msgspec.json.decode(content, type=_Document)
        resources = tuple(found.summary.resources)
        timeline = tuple(_sample(row, resources) for row in found.timeline)
        return SimulationResult(
            outcomes=tuple(map(_outcome, found.pods)),
            nodes=tuple(_node(row, resources) for row in found.nodes),
            timeline=timeline,
            resources=resources,
            mean_requested=tuple(
                # A version that does not say it has the mean of its samples.
                found.summary.resources[name].get(
                    "meanRequested", mean_over_time(timeline, [sample.requested[i] for sample in timeline])
                )
                for i, name in enumerate(resources)
            ),
            api=_api(cluster),
            run=found.run,
            remarks=tuple(found.remarks),
            preemptions=tuple(StartedPreemption(**row) for row in found.preemptions),
            plugin_failures=tuple(PluginFailure(**row) for row in found.plugin_failures),
            refused=tuple(RefusedPods(**row) for row in found.refused),
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError("result of kubestow simulate", f"cannot be read: {error}") from None


def _outcome(row: Mapping[str, Any]) -> PodOutcome:
    typed = {"state": OutcomeState(row["state"]), "origin": Origin(row["origin"])}
    return PodOutcome(**{name: row[name] for name in PodOutcome.__slots__} | typed)


def _node(row: Mapping[str, Any], resources: Sequence[str]) -> NodeState:
    requested, allocatable = ({name: row[f"{of}.{name}"] for name in resources} for of in _AMOUNTS[:2])
    return NodeState(row["name"], row["pods"], requested, allocatable)


def _sample(row: Mapping[str, Any], resources: Sequence[str]) -> ClusterSample:
    amounts = {of: tuple(row[f"{of}.{name}"] for name in resources) for of in _AMOUNTS}
    return ClusterSample(row["time"], row["pods"], row["pending"], row["nodesUsed"], **amounts)


def _api(cluster: ClusterObjects) -> MemoryAPI:
    """The nodes of the simulated cluster, which do not come and go."""
    api = MemoryAPI()
    for node in cluster.nodes:
        api.put(node)
    return api
