"""DeschedulerPolicy (descheduler/v1alpha2): its types, and strict decoding and validation with all mistakes at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import structs

from kubestow.api.selector_text import parse_selector
from kubestow.config.decoding import Decoder
from kubestow.config.document import Document, DocumentError, parse_document
from kubestow.config.field_errors import FieldError, configuration_error
from kubestow.descheduling.default_evictor import (
    SYSTEM_CRITICAL_PRIORITY,
    DefaultEvictor,
    DefaultEvictorArgs,
    PriorityThreshold,
)
from kubestow.descheduling.interface import BASES, ExtensionPoint, Registry
from kubestow.descheduling.snapshot import PriorityClass
from kubestow.errors import InvalidSelector

API_VERSION, KIND = "descheduler/v1alpha2", "DeschedulerPolicy"

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class PluginSet(msgspec.Struct, frozen=True):
    """The plugins of one extension point, in their order. ``disabled`` has no effect, as in the descheduler."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


class Plugins(msgspec.Struct, frozen=True):
    """The plugins of a profile by extension point."""

    presort: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    preevictionfilter: PluginSet = PluginSet()

    def enabled(self, point: ExtensionPoint) -> tuple[str, ...]:
        """The names of the plugins that are enabled at an extension point."""
        plugins: PluginSet = getattr(self, point.value)
        return plugins.enabled


class PluginConfig(msgspec.Struct, frozen=True):
    """The arguments of a plugin; decoded to its ``Args`` once the policy is loaded."""

    name: str = ""
    args: Any = None


class DeschedulerProfile(msgspec.Struct, frozen=True, rename="camel"):
    """A profile: plugins and their arguments."""

    name: str = ""
    plugin_config: tuple[PluginConfig, ...] = ()
    plugins: Plugins = Plugins()


class MetricsCollector(msgspec.Struct, frozen=True):
    """``metricsCollector``, the older form of ``metricsProviders``."""

    enabled: bool = False


class SecretReference(msgspec.Struct, frozen=True):
    """A secret with a token."""

    namespace: str = ""
    name: str = ""


class AuthToken(msgspec.Struct, frozen=True, rename="camel"):
    """How Prometheus is authenticated to."""

    secret_reference: SecretReference | None = None


class PrometheusOptions(msgspec.Struct, frozen=True, rename="camel"):
    """A Prometheus server."""

    url: str = ""
    auth_token: AuthToken | None = None


class MetricsProvider(msgspec.Struct, frozen=True):
    """A source of measured utilization."""

    source: str = ""
    prometheus: PrometheusOptions | None = None


class DeschedulerPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """A policy. Limits are per loop, over all profiles; ``grace_period_seconds`` None leaves it to the pods."""

    profiles: tuple[DeschedulerProfile, ...] = ()
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: _Int64 | None = None
    max_no_of_pods_to_evict_per_namespace: _Int64 | None = None
    max_no_of_pods_to_evict_total: _Int64 | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_collector: MetricsCollector | None = None
    metrics_providers: tuple[MetricsProvider, ...] = ()
    grace_period_seconds: _Int64 | None = None

    @property
    def prometheus(self) -> PrometheusOptions | None:
        """The Prometheus server that measures utilization."""
        return next((each.prometheus for each in self.metrics_providers if each.source == _PROMETHEUS), None)

    @property
    def uses_metrics_server(self) -> bool:
        """Whether utilization is measured by a metrics server."""
        collects = self.metrics_collector is not None and self.metrics_collector.enabled
        return collects or any(provider.source == "KubernetesMetrics" for provider in self.metrics_providers)


_KUBERNETES_METRICS, _PROMETHEUS = "KubernetesMetrics", "Prometheus"


def load_policy(
    source: str | bytes | Mapping[str, Any], *, registry: Registry, subject: str = "policy", staged: bool = False
) -> DeschedulerPolicy:
    """A policy with decoded arguments, from YAML or JSON text or plain data.

    Every profile has DefaultEvictor as a filter, and arguments for it. Raises ConfigurationError with all mistakes, or,
    if ``staged``, as the descheduler with those of the first stage that finds any, one for each plugin's arguments;
    ``subject`` names the policy in it, for example its file.
    """
    try:
        document = parse_document(source)
    except DocumentError as failure:
        raise configuration_error(subject, [failure.error]) from None
    policy, errors, undecoded = _decode(document, registry)
    if not errors or (not staged and isinstance(document.data, Mapping)):
        found = _argument_errors(policy, registry, first_only=staged)
        # What could not be decoded is at its default, whose mistakes are not those of the policy.
        errors += (error for error in found if not _is_within(error.path, undecoded))
    if not errors or not staged:
        errors += (error for error in _profile_errors(policy, registry) if not _is_within(error.path, undecoded))
    if errors:
        raise configuration_error(subject, map(document.located, dict.fromkeys(errors)))
    return policy


def _is_within(path: str, undecoded: Iterable[str]) -> bool:
    """Whether a mistake is in the arguments or the part of a policy that has fields which are not decoded."""
    return any(not other or _part(path) == _part(other) for other in undecoded)


#: The arguments of a plugin, or the enabled plugins of a profile.
_PART = re.compile(r"profiles\[\d+\](\.pluginConfig\[\d+\]|\.plugins)?")


def _part(path: str) -> str:
    """The part of a policy in which a field is."""
    found = _PART.match(path)
    return found[0] if found else path.partition(".")[0].partition("[")[0]


def with_priority_thresholds(
    policy: DeschedulerPolicy, classes: Iterable[PriorityClass], *, subject: str = "policy"
) -> DeschedulerPolicy:
    """The policy with the values of the priority classes that it names as thresholds.

    Raises ConfigurationError for a class that does not exist, and for a threshold above system-critical priority.
    """
    values = {found.metadata.name: found.value for found in classes}
    errors: list[FieldError] = []

    def resolved(config: PluginConfig, path: str) -> PluginConfig:
        if not isinstance(config.args, DefaultEvictorArgs):
            return config
        given = config.args.priority_threshold or PriorityThreshold()
        value = values.get(given.name) if given.name and given.value is None else given.value
        if value is None and given.name:
            text = (
                "unable to get priority value from the priority class: "
                f'priorityclasses.scheduling.k8s.io "{given.name}" not found'
            )
            errors.append(FieldError(f"{path}.name", text))
        elif value is not None and value > SYSTEM_CRITICAL_PRIORITY:
            errors.append(FieldError(path, f"priority threshold can't be greater than {SYSTEM_CRITICAL_PRIORITY}"))
        threshold = PriorityThreshold(SYSTEM_CRITICAL_PRIORITY if value is None else value)
        return structs.replace(config, args=structs.replace(config.args, priority_threshold=threshold))

    profiles = []
    for index, profile in enumerate(policy.profiles):
        path = f"profiles[{index}].pluginConfig"
        configs = (
            resolved(config, f"{path}[{number}].args.priorityThreshold")
            for number, config in enumerate(profile.plugin_config)
        )
        profiles.append(structs.replace(profile, plugin_config=tuple(configs)))
    if errors:
        raise configuration_error(subject, errors)
    return structs.replace(policy, profiles=tuple(profiles))


def _decode(document: Document, registry: Registry) -> tuple[DeschedulerPolicy, list[FieldError], list[str]]:
    """The policy as far as it can be decoded, the mistakes of the first stage that finds any, and the paths of the
    fields that are at their default because of these: an unknown field leaves the others as they are, unless it is one
    of them misspelt."""
    data = document.data
    if not isinstance(data, Mapping):
        return DeschedulerPolicy(), [FieldError("", f"expected a {KIND}, an object with apiVersion and kind")], [""]
    if errors := list(_type_errors(data)):
        return DeschedulerPolicy(), errors, [error.path for error in errors]
    decoder = Decoder()

    def typed(config: PluginConfig, path: str) -> PluginConfig:
        plugin = registry.get(config.name)
        return (
            config
            if plugin is None
            else structs.replace(config, args=decoder.decode(plugin.Args, _untyped(config.args), path))
        )

    policy = decoder.decode(DeschedulerPolicy, _untyped(data))
    profiles = []
    for index, profile in enumerate(policy.profiles):
        path = f"profiles[{index}].pluginConfig"
        configs = [typed(config, f"{path}[{number}].args") for number, config in enumerate(profile.plugin_config)]
        if all(config.name != DefaultEvictor.name for config in configs):
            configs.append(PluginConfig(DefaultEvictor.name, DefaultEvictorArgs()))
        profiles.append(_with_default_evictor(structs.replace(profile, plugin_config=tuple(configs))))
    policy = structs.replace(policy, profiles=tuple(profiles))
    found = [*decoder.type_errors, *document.duplicates]
    undecoded = [*(error.path for error in found), *decoder.misspelt]
    return policy, [*found, *decoder.strict_errors], undecoded


def _untyped(data: Any) -> Any:
    """An object without its apiVersion and kind."""
    if not isinstance(data, Mapping):
        return data
    return {name: value for name, value in data.items() if name not in ("apiVersion", "kind")}


def _type_errors(data: Mapping[str, Any]) -> Iterator[FieldError]:
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.get(field) != expected:
            given = f"got {data[field]}" if data.get(field) else "it is missing"
            yield FieldError(field, f"expected {expected}, {given}")


def _with_default_evictor(profile: DeschedulerProfile) -> DeschedulerProfile:
    """DefaultEvictor as the first filter and pre-eviction filter, where it is not enabled explicitly."""
    plugins = profile.plugins
    for field in ("filter", "preevictionfilter"):
        plugin_set = getattr(plugins, field)
        if DefaultEvictor.name not in plugin_set.enabled:
            enabled = (DefaultEvictor.name, *plugin_set.enabled)
            plugins = structs.replace(plugins, **{field: structs.replace(plugin_set, enabled=enabled)})
    return structs.replace(profile, plugins=plugins)


# -- validation --------------------------------------------------------------------------------------------------------


def _argument_errors(policy: DeschedulerPolicy, registry: Registry, *, first_only: bool) -> Iterator[FieldError]:
    for index, profile in enumerate(policy.profiles):
        for number, config in enumerate(profile.plugin_config):
            path = f"profiles[{index}].pluginConfig[{number}]"
            plugin = registry.get(config.name)
            if plugin is None:
                yield FieldError(f"{path}.name", f"plugin {config.name} in pluginConfig not registered")
                continue
            for problem in islice(plugin.validate(config.args), 1 if first_only else None):
                yield FieldError(f"{path}.args.{problem.path}".rstrip("."), problem.message)
    yield from _metrics_errors(policy)
    yield from _policy_errors(policy)


def _policy_errors(policy: DeschedulerPolicy) -> Iterator[FieldError]:
    counts = {
        "maxNoOfPodsToEvictPerNode": policy.max_no_of_pods_to_evict_per_node,
        "maxNoOfPodsToEvictPerNamespace": policy.max_no_of_pods_to_evict_per_namespace,
        "maxNoOfPodsToEvictTotal": policy.max_no_of_pods_to_evict_total,
        "gracePeriodSeconds": policy.grace_period_seconds,
    }
    for name, count in counts.items():
        if count is not None and count < 0:
            yield FieldError(name, f"must be 0 or more, got {count}")
    if policy.node_selector:
        try:
            parse_selector(policy.node_selector)
        except InvalidSelector as error:
            yield FieldError("nodeSelector", str(error))


def _metrics_errors(policy: DeschedulerPolicy) -> Iterator[FieldError]:
    sources: set[str] = set()
    for index, provider in enumerate(policy.metrics_providers):
        path = f"metricsProviders[{index}]"
        if provider.source not in (_KUBERNETES_METRICS, _PROMETHEUS):
            yield FieldError(f"{path}.source", f'expected KubernetesMetrics or Prometheus, got "{provider.source}"')
        if provider.source in sources:
            text = f'metric provider "{provider.source}" is already configured, each source can be configured only once'
            yield FieldError(f"{path}.source", text)
        sources.add(provider.source)
    if _KUBERNETES_METRICS in sources and policy.metrics_collector is not None and policy.metrics_collector.enabled:
        text = "it is not allowed to combine metrics provider when metrics collector is enabled"
        yield FieldError("metricsCollector.enabled", text)
    for index, provider in enumerate(policy.metrics_providers):
        if provider.source == _PROMETHEUS:
            yield from _prometheus_errors(provider.prometheus, f"metricsProviders[{index}].prometheus")


def _prometheus_errors(prometheus: PrometheusOptions | None, path: str) -> Iterator[FieldError]:
    if prometheus is None:
        yield FieldError(path, "prometheus configuration is required when prometheus source is enabled")
        return
    if not prometheus.url:
        yield FieldError(f"{path}.url", "prometheus URL is required when prometheus is enabled")
    token = prometheus.auth_token
    if token is not None and token.secret_reference is None:
        text = "prometheus authToken secret is expected to be set when authToken field is"
        yield FieldError(f"{path}.authToken.secretReference", text)
    reference = token.secret_reference if token is not None else None
    if reference is not None and not (reference.name and reference.namespace):
        text = "prometheus authToken secret reference does not set both namespace and name"
        yield FieldError(f"{path}.authToken.secretReference", text)


def _profile_errors(policy: DeschedulerPolicy, registry: Registry) -> Iterator[FieldError]:
    for index, profile in enumerate(policy.profiles):
        path = f"profiles[{index}].plugins"
        if errors := list(_extension_point_errors(profile, path, registry)):
            yield from errors
            continue
        configured = {config.name for config in profile.plugin_config}
        for point in BASES:
            for number, name in enumerate(profile.plugins.enabled(point)):
                if name not in configured:
                    text = f'unable to find "{name}" plugin config'
                    yield FieldError(f"{path}.{point.value}.enabled[{number}]", text)


def _extension_point_errors(profile: DeschedulerProfile, path: str, registry: Registry) -> Iterator[FieldError]:
    unregistered = {config.name for config in profile.plugin_config} - registry.keys()  # which is reported there
    for point, base in BASES.items():
        unknown = [
            name
            for name in dict.fromkeys(profile.plugins.enabled(point))
            if name not in unregistered and (name not in registry or not issubclass(registry[name], base))
        ]
        if unknown:
            names = " ".join(sorted(unknown))
            label = "preEvictionFilter" if point is ExtensionPoint.PRE_EVICTION_FILTER else point.value
            text = f'profile "{profile.name}" configures {label} extension point of non-existing plugins: {names}'
            yield FieldError(f"{path}.{point.value}.enabled", text)
