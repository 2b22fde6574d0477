"""Validation of a complete configuration (semantics 2.1, 2.2, 2.6).

Every rule is checked and every error reported, in kube-scheduler's order. Whether plugins are registered and implement
their extension points is checked in :mod:`kubestow.config.expansion`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from kubestow.api.formats.duration import Duration
from kubestow.api.formats.names import is_extended_resource, qualified_name_errors
from kubestow.config.configuration import (
    API_VERSION,
    ClientConnectionConfiguration,
    Extender,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginSet,
)
from kubestow.config.feature_gates import FeatureGates
from kubestow.config.field_errors import FieldError, child, duplicate, invalid, required
from kubestow.config.plugin_args import PluginArgs
from kubestow.config.validation.plugin_args import args_errors

__all__ = ["validate"]

_REMOVED_PLUGINS = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
_REMOVED = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
_PLACEMENT = (ExtensionPoint.PLACEMENT_GENERATE, ExtensionPoint.PLACEMENT_SCORE)


def validate(configuration: KubeSchedulerConfiguration, gates: FeatureGates) -> list[FieldError]:
    """All errors of a configuration whose defaults are set; empty if it is valid."""
    errors = chain(
        _client_connection(configuration.client_connection, "clientConnection"),
        _leader_election(configuration.leader_election, "leaderElection"),
        _parallelism(configuration),
        _profiles(configuration.profiles, gates),
        _percentage(configuration.percentage_of_nodes_to_score, "percentageOfNodesToScore"),
        _backoff(configuration),
        _extenders(configuration.extenders),
    )
    return list(dict.fromkeys(errors))


def _client_connection(connection: ClientConnectionConfiguration, path: str) -> Iterator[FieldError]:
    if connection.burst < 0:
        yield invalid(f"{path}.burst", connection.burst, "must be non-negative")


def _leader_election(election: LeaderElectionConfiguration, path: str) -> Iterator[FieldError]:
    if not election.leader_elect:
        return
    durations = {
        "leaseDuration": election.lease_duration,
        "renewDeadline": election.renew_deadline,
        "retryPeriod": election.retry_period,
    }
    for name, duration in durations.items():
        if duration <= Duration():
            yield invalid(f"{path}.{name}", duration, "must be greater than zero")
    if election.lease_duration <= election.renew_deadline:
        yield invalid(f"{path}.leaseDuration", election.renew_deadline, "must be greater than `RenewDeadline`")
    names = {
        "resourceLock": election.resource_lock,
        "resourceNamespace": election.resource_namespace,
        "resourceName": election.resource_name,
    }
    yield from (required(f"{path}.{field}") for field, name in names.items() if not name)
    if election.resource_lock != "leases":
        yield invalid(f"{path}.resourceLock", election.resource_lock, 'resourceLock value must be "leases"')


def _parallelism(configuration: KubeSchedulerConfiguration) -> Iterator[FieldError]:
    if configuration.parallelism <= 0:
        yield invalid("parallelism", configuration.parallelism, "should be an integer value greater than zero")


def _percentage(percentage: int | None, path: str) -> Iterator[FieldError]:
    if percentage is not None and not 0 <= percentage <= 100:
        yield invalid(path, percentage, "not in valid range [0-100]")


def _backoff(configuration: KubeSchedulerConfiguration) -> Iterator[FieldError]:
    initial, longest = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if longest < initial:
        yield invalid("podMaxBackoffSeconds", longest, "must be greater than or equal to PodInitialBackoffSeconds")


# Profiles ------------------------------------------------------------------------------------------------------------


def _profiles(profiles: Sequence[KubeSchedulerProfile], gates: FeatureGates) -> Iterator[FieldError]:
    if not profiles:
        yield required("profiles")
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        yield from _profile(profile, gates, path)
        if profile.scheduler_name in seen:
            yield duplicate(f"{path}.schedulerName", profile.scheduler_name)
        seen.add(profile.scheduler_name)
    yield from _common_queue_sort(profiles)


def _profile(profile: KubeSchedulerProfile, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    if not profile.scheduler_name:
        yield required(f"{path}.schedulerName")
    yield from _percentage(profile.percentage_of_nodes_to_score, f"{path}.percentageOfNodesToScore")
    yield from _removed_plugins(profile, f"{path}.plugins")
    seen: set[str] = set()
    for index, config in enumerate(profile.plugin_config):
        field_path = f"{path}.pluginConfig[{index}]"
        if config.name in seen:
            yield duplicate(field_path, config.name)
        seen.add(config.name)
        if config.name in _REMOVED_PLUGINS:
            yield invalid(field_path, config.name, _REMOVED)
        elif isinstance(config.args, PluginArgs):
            yield from args_errors(config.args, gates, f"{field_path}.args")


def _removed_plugins(profile: KubeSchedulerProfile, path: str) -> Iterator[FieldError]:
    """Plugins of earlier releases; kube-scheduler does not check the placement extension points for them."""
    for point in ExtensionPoint:
        if point in _PLACEMENT:
            continue
        for index, entry in enumerate(profile.plugins.at(point).enabled):
            if entry.name in _REMOVED_PLUGINS:
                yield invalid(f"{child(path, point)}.enabled[{index}]", entry.name, _REMOVED)


def _common_queue_sort(profiles: Sequence[KubeSchedulerProfile]) -> Iterator[FieldError]:
    """All profiles share one queue, so their queue sort plugin and its arguments must be equal."""
    if not profiles:
        return
    first = profiles[0].plugins.queue_sort
    if len(first.enabled) > 1:
        detail = "only one queue sort plugin can be enabled"
        yield invalid("profiles[0].plugins.queueSort.Enabled", len(first.enabled), detail)
    name = first.enabled[0].name if first.enabled else ""
    args = profiles[0].args.get(name) if name else None
    for index, profile in enumerate(profiles[1:], start=1):
        if _comparable(profile.plugins.queue_sort) != _comparable(first):
            value, detail = profile.plugins.queue_sort, "must be the same for all profiles"
            yield invalid(f"profiles[{index}].plugins.queueSort", value, detail)
        for config in profile.plugin_config:
            if config.name == name and config.args != args:
                detail = "queueSort must be the same for all profiles"
                yield invalid(f"profiles[{index}].pluginConfig.args", config.args, detail)


def _comparable(plugin_set: PluginSet) -> object:
    """A plugin set in which an unset weight equals 0."""
    return [(e.name, e.weight or 0) for e in plugin_set.enabled], [e.name for e in plugin_set.disabled]


# Extenders -----------------------------------------------------------------------------------------------------------


def _extenders(extenders: Sequence[Extender]) -> Iterator[FieldError]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        yield from _extender(extender, managed, f"extenders[{index}]")
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield invalid("extenders", found, "only one extender can implement bind")


def _extender(extender: Extender, managed: set[str], path: str) -> Iterator[FieldError]:
    if extender.prioritize_verb and extender.weight <= 0:
        yield invalid(f"{path}.weight", extender.weight, "must have a positive weight applied to it")
    for index, resource in enumerate(extender.managed_resources):
        field_path = f"{path}.managedResources[{index}].name"
        errors = qualified_name_errors(resource.name)
        yield from (invalid(field_path, resource.name, error) for error in errors)
        if not errors and not is_extended_resource(resource.name):
            yield invalid(field_path, resource.name, "is an invalid extended resource name")
        if resource.name in managed:
            yield invalid(field_path, resource.name, "duplicate extender managed resource name")
        managed.add(resource.name)
