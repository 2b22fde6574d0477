"""The DynamicSchedulerPolicy: which metrics of nodes decide, and how."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

from kubestow.api.formats.duration import Duration
from kubestow.config.decoding import Decoder
from kubestow.errors import ConfigurationError, InputError

__all__ = ["DynamicSchedulerPolicy", "read_policy"]

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
    try:
        data = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise InputError(subject, f"cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InputError(subject, f"not valid YAML: {' '.join(str(error).split())}") from None
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
