"""The load of nodes in their annotations, as columns.

crane's controller writes ``<metric>: "<value>,<time>"``, where the value is a fraction of 1. The time has the form of
UTC but is the local time of the controller, of the time zone in the environment variable ``TZ`` or else Asia/Shanghai.
A value counts until its metric's period and five more minutes have passed. Values that are negative, not finite, or
malformed do not count, nor do those from the future, which are a sign of different time zones.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.events import Action
from kubestow.cluster.nodes.columns import Column
from kubestow.errors import InputError
from kubestow.framework.interface import Handle
from kubestow.log_fields import fields
from kubestow_contrib.node_load.changed_nodes import ChangedNodes

__all__ = ["EXTRA_SECONDS", "AnnotatedLoad", "time_zone"]

_log = logging.getLogger(__name__)

#: For so long after its period a value still counts, in seconds.
EXTRA_SECONDS = 300.0

_DEFAULT_ZONE = "Asia/Shanghai"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
#: A value from at most this many seconds ahead counts.
_CLOCK_SKEW = 60.0


def time_zone(environment: Mapping[str, str]) -> tzinfo:
    """The time zone of the controller. Raises InputError if there is none of the name in ``TZ``."""
    name = environment.get("TZ") or _DEFAULT_ZONE
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InputError("TZ", f'no time zone "{name}", expected that of the crane controller') from None


class AnnotatedLoad:
    """The values of some metrics and the times at which they expire, per row of the node table.

    ``lifetimes`` are the seconds for which a value of a metric counts.
    """

    def __init__(self, handle: Handle, lifetimes: Mapping[str, float], zone: tzinfo) -> None:
        self._handle, self._lifetimes, self._zone = handle, lifetimes, zone
        columns = handle.cluster.nodes.columns
        self._values: dict[str, Column] = {name: columns.new(np.float64, fill=math.nan) for name in lifetimes}
        self._expiry: dict[str, Column] = {name: columns.new(np.float64, fill=-math.inf) for name in lifetimes}
        self._changed_nodes = ChangedNodes(handle.cluster, Action.UPDATE_NODE_ANNOTATION)
        #: When values were last known to be current.
        self._checked = -math.inf
        self._has_warned = False

    def values(self, metric: str, rows: slice | NDArray[np.intp]) -> NDArray[np.float64]:
        """The values of a metric that count now, float64; NaN where there is none."""
        self._refresh()
        now = self._handle.now().timestamp()
        current = self._expiry[metric].readonly[rows] > now
        return np.where(current, self._values[metric].readonly[rows], math.nan)

    def has_expired(self) -> bool:
        """Whether any value has ceased to count since the last call."""
        self._refresh()
        now, checked = self._handle.now().timestamp(), self._checked
        self._checked = now
        expiries = (column.readonly for column in self._expiry.values())
        return any(bool(((checked < expiry) & (expiry <= now)).any()) for expiry in expiries)

    def _refresh(self) -> None:
        for row in self._changed_nodes.rows():
            node = self._handle.cluster.nodes.objects[row]
            for metric, lifetime in self._lifetimes.items():
                value, expiry = self._parse(node, metric, lifetime)
                self._values[metric].values[row], self._expiry[metric].values[row] = value, expiry

    def _parse(self, node: Node, metric: str, lifetime: float) -> tuple[float, float]:
        nothing = math.nan, -math.inf
        value_text, _, time_text = node.metadata.annotations.get(metric, "").partition(",")
        try:
            value = float(value_text)
            moment = datetime.strptime(time_text, _FORMAT).replace(tzinfo=self._zone)
        except ValueError:
            return nothing
        if not math.isfinite(value) or value < 0:
            return nothing
        written = moment.timestamp()
        if written > self._handle.now().timestamp() + _CLOCK_SKEW:
            self._warn(node, metric, time_text)
            return nothing
        return value, written + lifetime

    def _warn(self, node: Node, metric: str, time_text: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "node %s: annotation %s is from the future (%s) and is ignored, as others may be; "
            "set TZ to the time zone of the crane controller",
            node.metadata.name,
            metric,
            time_text,
            extra=fields(node=node.metadata.name, annotation=metric),
        )
