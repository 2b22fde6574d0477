"""CarbonAware: the node where the pod causes the least emissions, by power and by the zone's carbon intensity.

Intensities are grams of CO2 equivalent per kilowatt-hour, in the args or in a file of the same form. The file is read
when the scheduler starts, and again every minute while it runs, for programs that keep it up to date hour by hour. A
change is an event that invalidates cached scores. While the file cannot be used, the last intensities count.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import Handle, Scores
from kubestow.log_fields import fields
from kubestow_contrib.energy.power_aware import PowerAware
from kubestow_contrib.energy.power_models import PowerArgs

_log = logging.getLogger(__name__)

_ZONE = "topology.kubernetes.io/zone"
#: The name of the event that other intensities are.
_CARBON_INTENSITY = "CarbonIntensity"
#: The file is read again so many seconds after the last time.
RELOAD_PERIOD = 60.0


class CarbonArgs(PowerArgs, rename="camel", frozen=True, kw_only=True):
    """Grams of CO2 equivalent per kilowatt-hour by the value of a node label, here or in a YAML or JSON file.

    The zone ``""`` is that of all other nodes.
    """

    intensities: dict[str, float] = {}
    intensity_file: str = ""
    zone_label: str = _ZONE

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.intensities) == bool(self.intensity_file):
            raise ValueError("expected either intensities or intensityFile")
        if problem := _problem_of(self.intensities):
            raise ValueError(f"intensities {problem}")


class CarbonAware(PowerAware):
    """Prefers the nodes where the pod causes the least emissions."""

    name = "CarbonAware"
    Args = CarbonArgs
    events_to_register = (
        *PowerAware.events_to_register,
        on(_CARBON_INTENSITY, Action.UPDATE, invalidates=Invalidation.ALL, requeues=False),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._intensities = args.intensities or _read_intensities(args.intensity_file)
        self._columns: tuple[int, NDArray[np.float64]] = (-1, np.zeros(0))
        #: Why the file could not be used when it was read last, "" if it could.
        self._failure = ""
        if args.intensity_file:
            handle.run_periodically(RELOAD_PERIOD, self._reload)

    async def _reload(self) -> None:
        """Read the file, and report a change."""
        try:
            found = _read_intensities(self.args.intensity_file)
        except InputError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                _log.warning("Unable to reload carbon intensities: %s", error, extra=fields(err=str(error)))
            return
        self._failure = ""
        if found != self._intensities:
            self._intensities, self._columns = found, (-1, np.zeros(0))
            self.handle.report_change(ClusterEvent(_CARBON_INTENSITY, Action.UPDATE))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """What the pod adds to the node's emissions, in milligrams per hour, negative."""
        # Watts times grams per kilowatt-hour are milligrams per hour.
        scores: Scores = -np.rint(self.rise(pod, nodes) * self._intensity(nodes)).astype(np.int64)
        return scores

    def _intensity(self, nodes: Nodes) -> NDArray[np.float64]:
        cluster = self.handle.cluster
        revision, column = self._columns
        if revision != cluster.nodes.revision:
            known, default = self._intensities, self._intensities[""]
            column = cluster.all_nodes().by_label(
                self.args.zone_label, lambda zone: known.get(zone or "", default), np.float64
            )
            self._columns = cluster.nodes.revision, column
        return column[nodes.rows]


def _problem_of(intensities: dict[str, float]) -> str:
    if not intensities:
        return ""
    if "" not in intensities:
        return 'needs the zone "", for nodes in none of the others'
    wrong = [zone for zone, value in intensities.items() if not 0 <= value < math.inf]
    return f"of zone {wrong[0]!r} is {intensities[wrong[0]]}, expected at least 0" if wrong else ""


def _read_intensities(path: str) -> dict[str, float]:
    """The intensities by zone in a file. Raises InputError."""
    try:
        found = msgspec.convert(load_yaml(read_file(Path(path)), path), dict[str, float])
    except msgspec.ValidationError as error:
        raise InputError(path, f"expected grams of CO2 equivalent per kilowatt-hour by zone: {error}") from None
    if problem := _problem_of(found) or ("" if found else 'needs the zone ""'):
        raise InputError(path, problem)
    return found
