"""The types of a DeschedulerPolicy (descheduler/v1alpha2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

__all__ = [
    "API_VERSION",
    "KIND",
    "DeschedulerPolicy",
    "DeschedulerProfile",
    "ExtensionPoint",
    "PluginConfig",
    "PluginSet",
    "Plugins",
    "Prometheus",
]

API_VERSION, KIND = "descheduler/v1alpha2", "DeschedulerPolicy"

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ExtensionPoint(StrEnum):
    """The extension points; the values are the field names of ``plugins``."""

    PRE_SORT = "presort"
    SORT = "sort"
    DESCHEDULE = "deschedule"
    BALANCE = "balance"
    FILTER = "filter"
    PRE_EVICTION_FILTER = "preevictionfilter"


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


class Prometheus(msgspec.Struct, frozen=True, rename="camel"):
    """A Prometheus server."""

    url: str = ""
    auth_token: AuthToken | None = None


class MetricsProvider(msgspec.Struct, frozen=True):
    """A source of measured utilization."""

    source: str = ""
    prometheus: Prometheus | None = None


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
    def prometheus(self) -> Prometheus | None:
        """The Prometheus server that measures utilization."""
        return next((each.prometheus for each in self.metrics_providers if each.source == "Prometheus"), None)

    @property
    def uses_metrics_server(self) -> bool:
        """Whether utilization is measured by a metrics server."""
        collects = self.metrics_collector is not None and self.metrics_collector.enabled
        return collects or any(provider.source == "KubernetesMetrics" for provider in self.metrics_providers)
