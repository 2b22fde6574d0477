"""DeschedulerPolicy (descheduler/v1alpha2): its types, and strict decoding and validation with all mistakes at once."""

from kubestow.descheduling.policy.loading import load_policy, with_priority_thresholds
from kubestow.descheduling.policy.types import (
    API_VERSION,
    KIND,
    DeschedulerPolicy,
    DeschedulerProfile,
    ExtensionPoint,
    PluginConfig,
    Plugins,
    PluginSet,
    Prometheus,
)

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
    "load_policy",
    "with_priority_thresholds",
]
