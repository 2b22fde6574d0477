"""The load-aware plugin of crane-scheduler: Dynamic.

It rejects nodes whose load is above a limit, and prefers nodes with little load. A DynamicSchedulerPolicy names the
metrics, limits and weights; crane's controller writes the load of nodes to their annotations.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Hashable, Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.formats.duration import Duration
from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.decoding import Decoder
from kubestow.errors import ConfigurationError, InputError
from kubestow.files import read_file
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.log_fields import fields
from kubestow_contrib.node_load.usage import ChangedNodes

_API_VERSION, _KIND = "scheduler.policy.crane.io/v1alpha1", "DynamicSchedulerPolicy"


class SyncPolicy(msgspec.Struct, frozen=True):
    """How often a metric is written; a value is used for this period and five minutes."""

    name: str = ""
    period: Duration = Duration()


class PredicatePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """The limit of a metric, a fraction of 1; 0 is no limit. The field is spelled as upstream spells it."""

    name: str = ""
    max_limit_pecent: float = 0.0


class PriorityPolicy(msgspec.Struct, frozen=True):
    """The weight of a metric in the score."""

    name: str = ""
    weight: float = 0.0


class HotValuePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How many pods may be placed in a time before a node is hot; crane's controller uses it, the plugin does not."""

    time_range: Duration = Duration()
    count: int = 0


class PolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec``."""

    sync_policy: tuple[SyncPolicy, ...] = ()
    predicate: tuple[PredicatePolicy, ...] = ()
    priority: tuple[PriorityPolicy, ...] = ()
    hot_value: tuple[HotValuePolicy, ...] = ()


class DynamicSchedulerPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """The file."""

    api_version: str = ""
    kind: str = ""
    spec: PolicySpec = PolicySpec()

    def periods(self) -> dict[str, float]:
        """The periods of the metrics that have one, in seconds."""
        periods: dict[str, float] = {}
        for sync in self.spec.sync_policy:
            if sync.period.seconds > 0:
                periods.setdefault(sync.name, sync.period.seconds)
        return periods


def read_policy(path: Path) -> DynamicSchedulerPolicy:
    """Read a policy. Raises InputError, with every problem and its field."""
    subject = str(path)
    data = load_yaml(read_file(path), subject)
    decoder = Decoder()
    policy = decoder.decode(DynamicSchedulerPolicy, data)
    problems = [(error.path, error.message) for error in (*decoder.type_errors, *decoder.strict_errors)]
    problems += [] if problems else _problems(policy)
    if problems:
        raise ConfigurationError(subject, problems)
    return policy


def _problems(policy: DynamicSchedulerPolicy) -> Iterator[tuple[str, str]]:
    if (policy.api_version, policy.kind) != (_API_VERSION, _KIND):
        found = f"{policy.api_version or 'no apiVersion'}, {policy.kind or 'no kind'}"
        yield "", f"is {found}, expected {_API_VERSION}, {_KIND}"
    for index, predicate in enumerate(policy.spec.predicate):
        limit = predicate.max_limit_pecent
        if not (math.isfinite(limit) and limit >= 0):
            yield f"spec.predicate[{index}].maxLimitPecent", f"is {limit}, expected a fraction such as 0.65, or 0"
    weights = [priority.weight for priority in policy.spec.priority]
    for index, weight in enumerate(weights):
        if not (math.isfinite(weight) and weight >= 0):
            yield f"spec.priority[{index}].weight", f"is {weight}, expected a weight of at least 0"
    if weights and not any(weights):
        yield "spec.priority", "all weights are 0"
    for index, hot in enumerate(policy.spec.hot_value):
        if hot.count <= 0:
            yield f"spec.hotValue[{index}].count", f"is {hot.count}, expected at least 1"


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
        if written <= self._handle.now().timestamp() + _CLOCK_SKEW:
            return value, written + lifetime
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "node %s: annotation %s is from the future (%s) and is ignored, as others may be; "
                "set TZ to the time zone of the crane controller",
                *(node.metadata.name, metric, time_text),
                extra=fields(node=node.metadata.name, annotation=metric),
            )
        return nothing


_HOT_VALUE = "node_hot_value"
_HOT_VALUE_LIFETIME = 300.0
#: Values that have expired are noticed after at most so many seconds.
_EXPIRY_PERIOD = 30.0
_LOAD_EXPIRED = "crane.io/LoadExpired"


class DynamicArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The file with the DynamicSchedulerPolicy."""

    policy_config_path: str | None = None


class Dynamic(FilterPlugin, ScorePlugin):
    """Limits and balances the load that annotations report."""

    name = "Dynamic"
    Args = DynamicArgs
    label_keys = ()
    events_to_register = (
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ANNOTATION),
        on(_LOAD_EXPIRED, Action.UPDATE, invalidates=Invalidation.ALL),
    )

    def __init__(self, args: DynamicArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        path = Path(args.policy_config_path or "/etc/kubernetes/dynamic-scheduler-policy.yaml")
        policy = read_policy(path)
        periods = policy.periods()
        self._limits = [
            (predicate.name, predicate.max_limit_pecent)
            for predicate in policy.spec.predicate
            if predicate.max_limit_pecent > 0 and predicate.name in periods
        ]
        self._weights = [(priority.name, priority.weight) for priority in policy.spec.priority]
        self._total_weight = sum(weight for _, weight in self._weights)
        self._statuses = {
            key: Status.unschedulable(f"Load[{metric}] of node is too high")
            for key, (metric, _) in enumerate(self._limits, 1)
        }
        lifetimes = {name: period + EXTRA_SECONDS for name, period in periods.items()}
        lifetimes[_HOT_VALUE] = _HOT_VALUE_LIFETIME
        self._known = lifetimes.keys()
        self._load = AnnotatedLoad(handle, lifetimes, time_zone(os.environ))
        handle.run_periodically(_EXPIRY_PERIOD, self._check_expiry)

    def signature(self, pod: PodInfo) -> Hashable:
        """Whether the pod is one of a DaemonSet."""
        return _is_of_daemon_set(pod)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Rejects by the first metric above its limit."""
        if _is_of_daemon_set(pod):
            return None
        keys = np.zeros(len(nodes), np.int32)
        for key, (metric, limit) in enumerate(self._limits, 1):
            above = self._load.values(metric, nodes.rows) > limit
            keys[above & (keys == 0)] = key
        return Verdict.of(keys, self._statuses) if keys.any() else None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The mean of what is free, in percent, less ten times the hot value; a metric without value adds nothing."""
        total = np.zeros(len(nodes))
        for metric, weight in self._weights:
            if metric in self._known:
                usage = self._load.values(metric, nodes.rows)
                total += np.where(np.isnan(usage), 0.0, (1.0 - usage) * weight * MAX_SCORE)
        free = np.trunc(total / self._total_weight) if self._total_weight else total
        hot = np.trunc(np.nan_to_num(self._load.values(_HOT_VALUE, nodes.rows)) * 10)
        return np.clip(free - hot, 0, MAX_SCORE).astype(np.int64)

    async def _check_expiry(self) -> None:
        if self._load.has_expired():
            self.handle.report_change(ClusterEvent(_LOAD_EXPIRED, Action.UPDATE))


def _is_of_daemon_set(pod: PodInfo) -> bool:
    controller = pod.shape.controller
    return controller is not None and controller.kind == "DaemonSet"
