"""MultiPoint expansion: from a profile's plugin sets to the ordered plugins of each extension point (semantics 2.4).

This part of building a profile needs only names: the registered plugins and their extension points are passed in as
``implements``, and no plugin is constructed. Profiles that kube-scheduler rejects while it builds the scheduler are
rejected here with the same messages. kube-scheduler stops at the first error; here all are reported, in the same order,
and a name that is not registered with what is known of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import chain
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import structs

from kubestow.api.formats.int64 import as_int64
from kubestow.config.configuration import ExtensionPoint, KubeSchedulerConfiguration, KubeSchedulerProfile, PluginEntry
from kubestow.config.field_errors import FieldError
from kubestow.config.plugin_args import NodeResourcesFitArgs
from kubestow.config.validation import node_resources_fit_errors
from kubestow.errors import ConfigurationError
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor

Implements = Mapping[str, Set[str]]
"""The extension points ("preFilter", "score", …) that each registered plugin implements, by plugin name."""


@runtime_checkable
class KnowsAbsentPlugins(Protocol):
    """What knows more of a name that is not registered; :data:`Implements` may."""

    def absence(self, name: str) -> str:
        """What the plugin is and what comes nearest to it; empty if that is not known."""


_FIT = "NodeResourcesFit"
_MAX_NODE_SCORE = 100


class EnabledPlugin(NamedTuple):
    """A plugin at an extension point; the weight is 0 except at Score and PlacementScore."""

    name: str
    weight: int


def expand(profile: KubeSchedulerProfile, implements: Implements) -> Mapping[ExtensionPoint, tuple[EnabledPlugin, ...]]:
    """The plugins of every extension point in call order.

    Raises ConfigurationError for a plugin that is not registered, that is enabled at a point it does not implement, or
    that is enabled twice; for none or several queue sort plugins; and for a profile without a bind plugin.
    """
    errors = list(_profile_errors(profile, implements, DEFAULT_MINOR))
    if errors:
        raise ConfigurationError(f'profile "{profile.scheduler_name}"', [("", error.message) for error in errors])
    plugins = {}
    for point in ExtensionPoint:
        weights = _weights(profile, point) if point.scores else {}
        names = _expanded(profile, point, implements)
        plugins[point] = tuple(EnabledPlugin(name, weights.get(name, 0)) for name in names)
    return plugins


def construction_errors(
    configuration: KubeSchedulerConfiguration, implements: Implements, *, minor: Minor = DEFAULT_MINOR
) -> list[FieldError]:
    """The errors of building a scheduler of a ``minor`` version from a valid configuration and registered plugins."""
    return [FieldError("", error.message) for error in plugin_errors(configuration, implements, minor)]


class ConstructionError(NamedTuple):
    """An error of building a scheduler; with the index of the profile and the plugin, if it is about one.

    If it combines errors of the plugin's arguments, these are its ``details``, with paths below the arguments.
    """

    message: str
    profile: int | None = None
    plugin: str = ""
    details: tuple[FieldError, ...] = ()


def plugin_errors(
    configuration: KubeSchedulerConfiguration, implements: Implements, minor: Minor
) -> list[ConstructionError]:
    """As :func:`construction_errors`, with the profiles and plugins that are concerned."""
    if _ignored_resources(configuration) and not all(_FIT in profile.args for profile in configuration.profiles):
        text = "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
        return [ConstructionError(text)]
    configuration = apply_ignored_resources(configuration)
    errors = [
        ConstructionError(
            f"initializing profiles: creating profile for scheduler name {profile.scheduler_name}: {error.message}",
            index,
            error.plugin,
            error.details,
        )
        for index, profile in enumerate(configuration.profiles)
        for error in (*_fit_errors(profile, implements, minor), *_profile_errors(profile, implements, minor))
    ]
    return errors or [
        error._replace(message=f"initializing profiles: {error.message}")
        for error in _queue_sort_errors(configuration, implements)
    ]


def apply_ignored_resources(configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Make NodeResourcesFit ignore the resources that extenders manage with ``ignoredByScheduler``.

    They replace the ``ignoredResources`` of every profile. Without such resources the configuration is unchanged.
    """
    ignored = _ignored_resources(configuration)
    if not ignored:
        return configuration
    profiles = []
    for profile in configuration.profiles:
        configs = tuple(
            structs.replace(config, args=structs.replace(config.args, ignored_resources=ignored))
            if isinstance(config.args, NodeResourcesFitArgs)
            else config
            for config in profile.plugin_config
        )
        profiles.append(structs.replace(profile, plugin_config=configs))
    return structs.replace(configuration, profiles=tuple(profiles))


def _ignored_resources(configuration: KubeSchedulerConfiguration) -> tuple[str, ...]:
    resources = (resource for extender in configuration.extenders for resource in extender.managed_resources)
    return tuple(resource.name for resource in resources if resource.ignored_by_scheduler)


# Ordering ------------------------------------------------------------------------------------------------------------


def _expanded(profile: KubeSchedulerProfile, point: ExtensionPoint, implements: Implements) -> list[str]:
    """The names of a point's plugins in call order.

    Plugins enabled both at the point and at multiPoint come first, in the point's order; then those enabled only at
    multiPoint; then those enabled only at the point.
    """
    at_point = profile.plugins.at(point)
    own = list(dict.fromkeys(entry.name for entry in at_point.enabled))
    if "*" in at_point.disabled_names:
        return own
    expanded = [
        entry.name
        for entry in profile.plugins.multi_point.enabled
        if point in implements.get(entry.name, ()) and entry.name not in at_point.disabled_names
    ]
    overridden = [name for name in own if name in expanded]
    return overridden + [n for n in expanded if n not in own] + [n for n in own if n not in expanded]


def _weights(profile: KubeSchedulerProfile, point: ExtensionPoint) -> dict[str, int]:
    """Each plugin's weight: from its entry at the point, else at multiPoint; unset and 0 mean 1."""
    entries: tuple[PluginEntry, ...] = (*profile.plugins.at(point).enabled, *profile.plugins.multi_point.enabled)
    weights: dict[str, int] = {}
    for entry in entries:
        weights.setdefault(entry.name, entry.weight or 1)
    return weights


# Errors --------------------------------------------------------------------------------------------------------------


def _profile_errors(profile: KubeSchedulerProfile, implements: Implements, minor: Minor) -> Iterator[ConstructionError]:
    """The errors of one profile in kube-scheduler's order; each plugin is reported once."""
    first_of_kind: dict[tuple[str, str], ConstructionError] = {}
    for kind, error in chain(_point_errors(profile, implements), _multi_point_errors(profile, implements)):
        first_of_kind.setdefault((error.plugin, kind), error)
    yield from first_of_kind.values() or map(ConstructionError, _composition_errors(profile, implements, minor))


_OfKind = tuple[str, ConstructionError]
"""An error of one plugin, with its kind; of several of one kind only the first is reported."""


def _point_errors(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[_OfKind]:
    for point in ExtensionPoint:
        seen: set[str] = set()
        for entry in profile.plugins.at(point).enabled:
            name = entry.name
            if name not in implements:
                yield _not_registered(name, point, implements)
            elif point not in implements[name]:
                problem = f'plugin "{name}" does not extend {point.interface} plugin'
                yield f"extend {point}", ConstructionError(problem, plugin=name)
            elif name in seen:
                yield _registered_twice(name, point)
            seen.add(name)


def _multi_point_errors(profile: KubeSchedulerProfile, implements: Implements) -> Iterator[_OfKind]:
    for point in ExtensionPoint:
        at_point = profile.plugins.at(point)
        if "*" in at_point.disabled_names:
            continue
        configured = at_point.disabled_names | {entry.name for entry in at_point.enabled}
        seen: set[str] = set()
        for entry in profile.plugins.multi_point.enabled:
            if entry.name not in implements:
                yield _not_registered(entry.name, point, implements)
            elif point in implements[entry.name] and entry.name not in configured:
                if entry.name in seen:
                    yield _registered_twice(entry.name, point)
                seen.add(entry.name)


def _not_registered(name: str, point: ExtensionPoint, implements: Implements) -> _OfKind:
    absence = implements.absence(name) if isinstance(implements, KnowsAbsentPlugins) else ""
    message = f'{point.interface} "{name}" does not exist' + (f": {absence}" if absence else "")
    return "missing", ConstructionError(message, plugin=name)


def _registered_twice(name: str, point: ExtensionPoint) -> _OfKind:
    return "twice", ConstructionError(f'plugin "{name}" already registered as "{point.interface}"', plugin=name)


def _composition_errors(profile: KubeSchedulerProfile, implements: Implements, minor: Minor) -> Iterator[str]:
    subject = f'for profile with scheduler name "{profile.scheduler_name}"'
    queue_sorts = len(_expanded(profile, ExtensionPoint.QUEUE_SORT, implements))
    if queue_sorts != 1:
        yield f"only one queue sort plugin required {subject}, but got {queue_sorts}"
    if not _expanded(profile, ExtensionPoint.BIND, implements):
        yield f"at least one bind plugin is needed {subject}"
    generators = len(_expanded(profile, ExtensionPoint.PLACEMENT_GENERATE, implements))
    if generators > 1:
        yield f"at most one placement generate plugin is allowed {subject}, but got {generators}"
    if _total_score_overflows(profile, ExtensionPoint.SCORE, implements):
        names_point = minor.has(Behaviour.OVERFLOW_ERRORS_NAME_THE_EXTENSION_POINT)
        yield f"{'score plugins: ' if names_point else ''}total score of Score plugins could overflow"
    if _total_score_overflows(profile, ExtensionPoint.PLACEMENT_SCORE, implements):
        yield "placement score plugins: total score of Score plugins could overflow"


def _total_score_overflows(profile: KubeSchedulerProfile, point: ExtensionPoint, implements: Implements) -> bool:
    """Whether the highest possible total score overflows int64, computed in int64 as kube-scheduler does.

    32-bit weights cannot overflow. But a negative running total makes MaxInt64 - total wrap around to a negative
    number, so any further plugin is rejected. This rule is what rejects most negative weights.
    """
    total = 0
    for name, weight in _weights(profile, point).items():
        if point not in implements.get(name, ()):
            continue
        remainder = as_int64(2**63 - 1 - total)
        if weight * _MAX_NODE_SCORE > remainder:
            return True
        total = as_int64(total + weight * _MAX_NODE_SCORE)
    return False


def _fit_errors(profile: KubeSchedulerProfile, implements: Implements, minor: Minor) -> Iterator[ConstructionError]:
    """kube-scheduler validates the arguments of NodeResourcesFit, and only those, when it builds the plugin."""
    args = profile.args.get(_FIT)
    if _FIT not in profile.plugins.enabled_names or _FIT not in implements:
        return
    if isinstance(args, NodeResourcesFitArgs):
        errors = tuple(node_resources_fit_errors(args, minor, ""))
        if errors:
            message = str(errors[0]) if len(errors) == 1 else f"[{', '.join(map(str, errors))}]"
            yield ConstructionError(f'initializing plugin "{_FIT}": {message}', plugin=_FIT, details=errors)


def _queue_sort_errors(
    configuration: KubeSchedulerConfiguration, implements: Implements
) -> Iterator[ConstructionError]:
    """All profiles share one queue, so they need the same queue sort plugin with the same arguments."""
    if not configuration.profiles:
        return
    (first,) = _expanded(configuration.profiles[0], ExtensionPoint.QUEUE_SORT, implements)
    first_args = configuration.profiles[0].args.get(first)
    for index, profile in enumerate(configuration.profiles[1:], start=1):
        (name,) = _expanded(profile, ExtensionPoint.QUEUE_SORT, implements)
        if name != first:
            text = f'different queue sort plugins for profile "{profile.scheduler_name}": "{name}", first: "{first}"'
            yield ConstructionError(text, index)
        elif profile.args.get(name) != first_args:
            text = f'different queue sort plugin args for profile "{profile.scheduler_name}"'
            yield ConstructionError(text, index)
