"""Peaks prefers the nodes whose power consumption rises least with the pod.

The power of a node at a CPU utilization of x percent is k0 + k1 e^(k2 x). The models of nodes are in the args, or else
in the JSON file that the environment variable NODE_POWER_MODEL names. A node without a model costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import MAX_SCORE, Handle
from kubestow_contrib.node_load.usage import NodeCapacity
from kubestow_contrib.range_normalization import inverted_range
from kubestow_contrib.trimaran.measured_nodes import MeasuredNodesPlugin, TrimaranArgs

_ENVIRONMENT_VARIABLE = "NODE_POWER_MODEL"
#: Raw scores are whole numbers of this part of the model's unit.
_SCALE = 1e15
_LARGEST = 2.0**62


class PowerModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The power of a node at x percent: ``k0 + k1 e^(k2 x)``."""

    k0: float = 0.0
    k1: float = 0.0
    k2: float = 0.0


class PeaksArgs(TrimaranArgs, rename="camel", frozen=True, kw_only=True):
    """The power models by node name; without any, they are read from the file that NODE_POWER_MODEL names."""

    node_power_model: dict[str, PowerModel] = {}


class Peaks(MeasuredNodesPlugin):
    """Scores the rise of the power of a node, the least of the feasible nodes highest."""

    name = "Peaks"
    Args = PeaksArgs

    def __init__(self, args: PeaksArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._models = args.node_power_model or _read_models(os.environ.get(_ENVIRONMENT_VARIABLE, ""))
        self._capacity = NodeCapacity(self._collector.usage)
        self._columns: tuple[int, NDArray[np.float64], NDArray[np.float64]] | None = None

    def signature(self, pod: PodInfo) -> Hashable:
        """The CPU request."""
        return pod.shape.requests.get("cpu", 0)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The rise of the power, scaled; 0 above 100 % and without metrics."""
        used, capacity = self._collector.usage.columns.cpu[nodes.rows], self._capacity.cpu(nodes)
        request = pod.shape.requests.get("cpu", 0)
        after = np.zeros(len(nodes))
        np.divide(100 * (used / 100 * capacity + request), capacity, out=after, where=capacity != 0)
        k1, k2 = (column[nodes.rows] for column in self._coefficients())
        with np.errstate(over="ignore", invalid="ignore"):
            rise = k1 * (np.exp(k2 * after) - np.exp(k2 * used)) * _SCALE
            rise = np.where(np.isnan(used) | (after > MAX_SCORE) | np.isnan(rise), 0.0, rise)
        return np.clip(rise, -_LARGEST, _LARGEST).astype(np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """100 for the least rise, 0 for the largest; all 0 if nothing rises."""
        return inverted_range(scores)

    def _coefficients(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """k1 and k2 over all rows."""
        table = self.handle.cluster.nodes
        if self._columns is None or self._columns[0] != table.structure:
            models = [self._models.get(name, PowerModel()) for name in table.names]
            k1, k2 = ([model.k1 for model in models], [model.k2 for model in models])
            self._columns = table.structure, np.array(k1, np.float64), np.array(k2, np.float64)
        return self._columns[1:]


def _read_models(path: str) -> dict[str, PowerModel]:
    """The power models by node name in a JSON file. Raises InputError."""
    if not path:
        problem = (
            f"is empty and the environment variable {_ENVIRONMENT_VARIABLE} names no file, "
            "expected the power model of at least one node"
        )
        raise InputError(f"plugin {Peaks.name}", problem, place="args.nodePowerModel")
    subject = f"{_ENVIRONMENT_VARIABLE}={path}"
    try:
        return msgspec.json.decode(read_file(Path(path)), type=dict[str, PowerModel])
    except msgspec.DecodeError as error:
        raise InputError(subject, f"expected power models by node name: {error}") from None
