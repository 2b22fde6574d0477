"""From a profile's plugin sets to the ordered plugins of each extension point (semantics 2.4).

This is the part of building a profile that is a question of names alone. Which plugins exist and which points each one
implements is handed in (``implements``), so the question can be asked without creating a plugin. What the reference
refuses while it builds its scheduler is refused here, in its words; where it stops at the first mistake, all are told,
the one that it would tell first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from msgspec import structs

from kubestow.config.configuration import ExtensionPoint, KubeSchedulerConfiguration, KubeSchedulerProfile, PluginEntry
from kubestow.config.field_problems import Problem
from kubestow.config.plugin_args import NodeResourcesFitArgs
from kubestow.config.validation.plugin_args import node_resources_fit_problems
from kubestow.errors import ConfigurationError

__all__ = ["EnabledPlugin", "Implements", "apply_ignored_resources", "construct_problems", "expand"]

Implements = Mapping[str, Set[str]]
"""Every plugin that exists, by name, with the extension points it implements ("preFilter", "score", …)."""

_FIT = "NodeResourcesFit"
_MAX_NODE_SCORE = 100


class EnabledPlugin(NamedTuple):
    """A plugin at an extension point; the weight is 0 at points that do not score."""

    name: str
    weight: int


def expand(profile: KubeSchedulerProfile, implements: Implements) -> Mapping[ExtensionPoint, tuple[EnabledPlugin, ...]]:
    """The plugins of every extension point in the order in which they are called.

    Raises ConfigurationError for what cannot be built: a plugin that does not exist, that does not implement a point
    it is enabled at, or that is there twice; none or several queue sort plugins; no bind plugin.
    """
    faults = list(_faults(profile, implements))
    if faults:
        raise ConfigurationError(f'profile "{profile.scheduler_name}"', [("", fault) for fault in faults])
    return MappingProxyType({point: _weighted(profile, point, implements) for point in ExtensionPoint})


def construct_problems(configuration: KubeSchedulerConfiguration, implements: Implements) -> list[Problem]:
    """Why a scheduler cannot be built of a valid configuration and the plugins that exist; empty if it can."""
    if not _extenders_can_be_built(configuration):
        text = "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
        return [Problem("", text)]
    configuration = apply_ignored_resources(configuration)
    faults = [
        f"creating profile for scheduler name {profile.scheduler_name}: {fault}"
        for profile in configuration.profiles
        for fault in (*_fit_faults(profile, implements), *_faults(profile, implements))
    ]
    faults = faults or list(_queue_sort_faults(configuration, implements))
    return [Problem("", f"initializing profiles: {fault}") for fault in faults]


def apply_ignored_resources(configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """The configuration in which NodeResourcesFit leaves to the extenders what they say the scheduler shall ignore.

    Their resources replace the ``ignoredResources`` of every profile; without any, everything stays as it is.
    """
    ignored = _ignored_resources(configuration)
    if not ignored:
        return configuration
    profiles = tuple(_with_ignored_resources(profile, ignored) for profile in configuration.profiles)
    return structs.replace(configuration, profiles=profiles)


def _ignored_resources(configuration: KubeSchedulerConfiguration) -> tuple[str, ...]:
    resources = (resource for extender in configuration.extenders for resource in extender.managed_resources)
    return tuple(resource.name for resource in resources if resource.ignored_by_scheduler)


def _with_ignored_resources(profile: KubeSchedulerProfile, ignored: tuple[str, ...]) -> KubeSchedulerProfile:
    configs = tuple(
        structs.replace(config, args=structs.replace(config.args, ignored_resources=ignored))
        if isinstance(config.args, NodeResourcesFitArgs)
        else config
        for config in profile.plugin_config
    )
    return structs.replace(profile, plugin_config=configs)


def _extenders_can_be_built(configuration: KubeSchedulerConfiguration) -> bool:
    return not _ignored_resources(configuration) or all(_FIT in p.args for p in configuration.profiles)


# Ordering ------------------------------------------------------------------------------------------------------------


def _expanded(profile: KubeSchedulerProfile, point: ExtensionPoint, implements: Implements) -> list[str]:
    """The names of a point's plugins in order.

    First what is enabled both at the point and at multiPoint, in the point's order; then what only multiPoint brings;
    then what only the point has.
    """
    at_point = profile.plugins.at(point)
    own = list(dict.fromkeys(entry.name for entry in at_point.enabled))
    if "*" in at_point.disabled_names:
        return own
    brought = [
        entry.name
        for entry in profile.plugins.multi_point.enabled
        if point in implements.get(entry.name, ()) and entry.name not in at_point.disabled_names
    ]
    overridden = [name for name in own if name in brought]
    return overridden + [n for n in brought if n not in own] + [n for n in own if n not in brought]


def _weighted(
    profile: KubeSchedulerProfile, point: ExtensionPoint, implements: Implements
) -> tuple[EnabledPlugin, ...]:
    names = _expanded(profile, point, implements)
    weights = _weights(profile, point) if point.scores else {}
    return tuple(EnabledPlugin(name, weights.get(name, 0)) for name in names)


def _weights(profile: KubeSchedulerProfile, point: ExtensionPoint) -> dict[str, int]:
    """Each plugin's weight: that of its entry at the point, else at multiPoint; none and 0 mean 1."""
    entries: tuple[PluginEntry, ...] = (*profile.plugins.at(point).enabled, *profile.plugins.multi_point.enabled)
    weights: dict[str, int] = {}
    for entry in entries:
        weights.setdefault(entry.name, entry.weight or 1)
    return weights


# Refusing ------------------------------------------------------------------------------------------------------------


def _faults(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[str]:
    """What the reference refuses in a profile, in the order in which it looks; each plugin is told once."""
    first_of_kind: dict[tuple[str, str], str] = {}
    for fault in chain(_point_faults(profile, implements), _multi_point_faults(profile, implements)):
        first_of_kind.setdefault((fault.plugin, fault.kind), fault.text)
    yield from first_of_kind.values() or _whole_profile_faults(profile, implements)


class _Fault(NamedTuple):
    """A refusal of one plugin; of several of one kind only the first is worth telling."""

    plugin: str
    kind: str
    text: str


def _point_faults(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[_Fault]:
    for point in ExtensionPoint:
        seen: set[str] = set()
        for entry in profile.plugins.at(point).enabled:
            name = entry.name
            if name not in implements:
                yield _missing(name, point)
            elif point not in implements[name]:
                yield _Fault(name, f"extend {point}", f'plugin "{name}" does not extend {point.interface} plugin')
            elif name in seen:
                yield _twice(name, point)
            seen.add(name)


def _multi_point_faults(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[_Fault]:
    for point in ExtensionPoint:
        at_point = profile.plugins.at(point)
        if "*" in at_point.disabled_names:
            continue
        settled = at_point.disabled_names | {entry.name for entry in at_point.enabled}
        seen: set[str] = set()
        for entry in profile.plugins.multi_point.enabled:
            if entry.name not in implements:
                yield _missing(entry.name, point)
            elif point in implements[entry.name] and entry.name not in settled:
                if entry.name in seen:
                    yield _twice(entry.name, point)
                seen.add(entry.name)


def _missing(name: str, point: ExtensionPoint) -> _Fault:
    return _Fault(name, "missing", f'{point.interface} "{name}" does not exist')


def _twice(name: str, point: ExtensionPoint) -> _Fault:
    return _Fault(name, "twice", f'plugin "{name}" already registered as "{point.interface}"')


def _whole_profile_faults(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[str]:
    whose = f'for profile with scheduler name "{profile.scheduler_name}"'
    queue_sorts = len(_expanded(profile, ExtensionPoint.QUEUE_SORT, implements))
    if queue_sorts != 1:
        yield f"only one queue sort plugin required {whose}, but got {queue_sorts}"
    if not _expanded(profile, ExtensionPoint.BIND, implements):
        yield f"at least one bind plugin is needed {whose}"
    generators = len(_expanded(profile, ExtensionPoint.PLACEMENT_GENERATE, implements))
    if generators > 1:
        yield f"at most one placement generate plugin is allowed {whose}, but got {generators}"
    if _total_score_overflows(profile, ExtensionPoint.SCORE, implements):
        yield "score plugins: total score of Score plugins could overflow"
    if _total_score_overflows(profile, ExtensionPoint.PLACEMENT_SCORE, implements):
        yield "placement score plugins: total score of Score plugins could overflow"


def _total_score_overflows(profile: KubeSchedulerProfile, point: ExtensionPoint, implements: Implements) -> bool:
    """Whether the highest possible total leaves int64, computed like the reference in int64.

    Weights of 32 bits cannot reach that. But what a running total below zero leaves of the largest int64 wraps around
    to below zero itself, so any plugin after it is refused: this is what keeps most negative weights out.
    """
    total = 0
    for name, weight in _weights(profile, point).items():
        if point not in implements.get(name, ()):
            continue
        room = _as_int64(2**63 - 1 - total)
        if weight * _MAX_NODE_SCORE > room:
            return True
        total = _as_int64(total + weight * _MAX_NODE_SCORE)
    return False


def _as_int64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _fit_faults(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[str]:
    """The one in-tree plugin whose arguments the reference first looks at when it creates the plugin."""
    args = profile.args.get(_FIT)
    if _FIT not in profile.plugins.enabled_names or _FIT not in implements:
        return
    if isinstance(args, NodeResourcesFitArgs):
        problems = [str(problem) for problem in node_resources_fit_problems(args, "")]
        if problems:
            told = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            yield f'initializing plugin "{_FIT}": {told}'


def _queue_sort_faults(configuration: KubeSchedulerConfiguration, implements: Implements) -> Iterator[str]:
    """All profiles share one queue, so they need one queue sort plugin with the same arguments."""
    if not configuration.profiles:
        return
    (first,) = _expanded(configuration.profiles[0], ExtensionPoint.QUEUE_SORT, implements)
    first_args = configuration.profiles[0].args.get(first)
    for profile in configuration.profiles[1:]:
        (name,) = _expanded(profile, ExtensionPoint.QUEUE_SORT, implements)
        if name != first:
            yield f'different queue sort plugins for profile "{profile.scheduler_name}": "{name}", first: "{first}"'
        elif profile.args.get(name) != first_args:
            yield f'different queue sort plugin args for profile "{profile.scheduler_name}"'
