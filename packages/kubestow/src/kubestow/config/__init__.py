"""KubeSchedulerConfiguration v1 (kubescheduler.config.k8s.io/v1): types, strict decoding, defaults, validation.

:func:`load` turns a text into a complete configuration; :func:`check` returns the errors that stop kube-scheduler, and
:func:`diagnose` all independent ones, with path and position::

    document ─► decoding ─► defaults ─► validation ─►│─► expansion ─► ordered plugins of each extension point
    YAML/JSON   strict      and merged  field rules  │   needs the registered plugins and
    to data     types       plugins                  │   the extension points of each

:func:`render` is the inverse: a v1 object with all defaults written out. Nothing here reads files or imports a plugin
class; plugins import the types of their arguments from :mod:`kubestow.config.plugin_args`.
"""

from kubestow.api.formats.duration import Duration
from kubestow.config.configuration import (
    API_VERSION,
    KIND,
    Extender,
    ExtenderTLSConfig,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginEntry,
)
from kubestow.config.defaults import default_plugins
from kubestow.config.diagnosis import diagnose
from kubestow.config.expansion import Implements, apply_ignored_resources, construction_errors, expand
from kubestow.config.feature_gates import FeatureGates, FeatureSpec, Stage, feature_specs
from kubestow.config.field_errors import FieldError
from kubestow.config.loading import Source, check, default_configuration, load
from kubestow.config.rendering import render
from kubestow.config.validation import validate

__all__ = [
    "API_VERSION",
    "KIND",
    "Duration",
    "Extender",
    "ExtenderTLSConfig",
    "ExtensionPoint",
    "FeatureGates",
    "FeatureSpec",
    "FieldError",
    "Implements",
    "KubeSchedulerConfiguration",
    "KubeSchedulerProfile",
    "LeaderElectionConfiguration",
    "PluginEntry",
    "Source",
    "Stage",
    "apply_ignored_resources",
    "check",
    "construction_errors",
    "default_configuration",
    "default_plugins",
    "diagnose",
    "expand",
    "feature_specs",
    "load",
    "render",
    "validate",
]
