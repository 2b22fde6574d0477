"""KubeSchedulerConfiguration v1 (kubescheduler.config.k8s.io/v1): types, strict decoding, defaults, validation.

A text goes in, a complete configuration comes out (:func:`load`), or every mistake with its path and line
(:func:`check`)::

    document ─► decoding ─► defaults ─► validation ─►│─► expansion ─► ordered plugins of each extension point
    YAML/JSON   types and   merged      rules of     │   needs to know which plugins exist and
    to data     strictness  plugins     the fields   │   which points each one implements

:func:`render` is the way back, to a v1 object with all defaults spelled out. Nothing here reads files or knows a plugin
class; plugins import the types of their arguments from :mod:`kubestow.config.plugin_args`.
"""

from kubestow.api.duration import Duration
from kubestow.config.configuration import (
    API_VERSION,
    KIND,
    ClientConnectionConfiguration,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginConfig,
    PluginEntry,
    Plugins,
    PluginSet,
)
from kubestow.config.default_plugins import default_plugins, merge_plugins
from kubestow.config.expansion import (
    EnabledPlugin,
    Implements,
    apply_ignored_resources,
    construct_problems,
    expand,
)
from kubestow.config.feature_gates import FEATURE_SPECS, FeatureGates, FeatureSpec, Stage
from kubestow.config.field_problems import Problem
from kubestow.config.loading import Source, check, default_configuration, load
from kubestow.config.rendering import DEFAULT_BURST, DEFAULT_QPS, render
from kubestow.config.validation.configuration import validate

__all__ = [
    "API_VERSION",
    "DEFAULT_BURST",
    "DEFAULT_QPS",
    "FEATURE_SPECS",
    "KIND",
    "ClientConnectionConfiguration",
    "Duration",
    "EnabledPlugin",
    "Extender",
    "ExtenderManagedResource",
    "ExtenderTLSConfig",
    "ExtensionPoint",
    "FeatureGates",
    "FeatureSpec",
    "Implements",
    "KubeSchedulerConfiguration",
    "KubeSchedulerProfile",
    "LeaderElectionConfiguration",
    "PluginConfig",
    "PluginEntry",
    "PluginSet",
    "Plugins",
    "Problem",
    "Source",
    "Stage",
    "apply_ignored_resources",
    "check",
    "construct_problems",
    "default_configuration",
    "default_plugins",
    "expand",
    "load",
    "merge_plugins",
    "render",
    "validate",
]
