"""Conversion of KubeSchedulerConfiguration v1alpha1, which has no profiles, to the fields of later versions.

The algorithm is named by ``algorithmSource``: a provider (DefaultProvider, ClusterAutoscalerProvider) or a Policy in a
file or ConfigMap. Fields of the only profile are at the top level. v1alpha2 has profiles, and some of these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubestow.config.decoding import is_list
from kubestow.config.document import DocumentError, parse_document, unwrap_config_map
from kubestow.config.field_errors import FieldError
from kubestow.config.legacy.conversion import ConversionError
from kubestow.config.legacy.policy import convert_policy

ReadFile = Callable[[str], bytes]
"""Reads a file that a configuration names; raises InputError."""

_PROFILE_FIELDS = (
    "schedulerName",
    "algorithmSource",
    "plugins",
    "pluginConfig",
    "disablePreemption",
    "hardPodAffinitySymmetricWeight",
    "bindTimeoutSeconds",
)
_ELECTION_FIELDS = {"lockObjectNamespace": "resourceNamespace", "lockObjectName": "resourceName"}


def with_profiles(data: Mapping[str, Any], warnings: list[FieldError], read_file: ReadFile | None) -> dict[str, Any]:
    """The data with its profile fields moved into ``profiles``. Raises ConversionError, and what ``read_file`` does."""
    converted = {name: value for name, value in data.items() if name not in _PROFILE_FIELDS}
    election = converted.get("leaderElection")
    if isinstance(election, Mapping):
        converted["leaderElection"] = {_ELECTION_FIELDS.get(name, name): value for name, value in election.items()}
    if "failureDomains" in converted:
        del converted["failureDomains"]
        warnings.append(FieldError("failureDomains", "omitted: each pod names its topology keys"))
    profiles = converted.get("profiles")
    given = profiles if is_list(profiles) and profiles else [{}]
    algorithm = _algorithm(data.get("algorithmSource"), warnings, read_file)
    if algorithm.get("extenders"):
        converted["extenders"] = algorithm["extenders"]
    if not isinstance(profiles, str | int | Mapping):
        converted["profiles"] = [
            _profile(data, profile, algorithm) if isinstance(profile, Mapping) else profile for profile in given
        ]
    return converted


def _algorithm(source: Any, warnings: list[FieldError], read_file: ReadFile | None) -> Mapping[str, Any]:
    """The converted Policy or provider: ``profile`` (plugins and pluginConfig) and ``extenders``."""
    if source in (None, {}):
        return {}
    if not isinstance(source, Mapping):
        raise ConversionError([FieldError("algorithmSource", "expected an object with provider or policy")])
    policy = source.get("policy")
    if isinstance(policy, Mapping):
        return _policy(policy, warnings, read_file)
    return _provider(source.get("provider"))


def _provider(provider: Any) -> Mapping[str, Any]:
    match provider:
        case None | "" | "DefaultProvider":
            return {}
        case "ClusterAutoscalerProvider":
            strategy = {"scoringStrategy": {"type": "MostAllocated"}}
            return {"profile": {"pluginConfig": [{"name": "NodeResourcesFit", "args": strategy}]}}
    text = f'"{provider}" is unknown, expected DefaultProvider or ClusterAutoscalerProvider; list its plugins instead'
    raise ConversionError([FieldError("algorithmSource.provider", text)])


def _policy(policy: Mapping[str, Any], warnings: list[FieldError], read_file: ReadFile | None) -> Mapping[str, Any]:
    match policy:
        case {"configMap": {"name": str(name), **others}}:
            namespace = others.get("namespace", "kube-system")
            command = f"kubectl get configmap {name} --namespace {namespace} --output yaml"
            text = f"save the ConfigMap to a file ({command}) and name it in algorithmSource.policy.file.path"
            raise ConversionError([FieldError("algorithmSource.policy.configMap", text)])
        case {"file": {"path": str(path)}}:
            if read_file is None:
                text = f"the Policy is in another file: convert {path} with kubestow config convert"
                raise ConversionError([FieldError("algorithmSource.policy.file.path", text)])
            return _policy_file(path, read_file(path), warnings)
    raise ConversionError([FieldError("algorithmSource.policy", "expected file.path or configMap.name")])


def _policy_file(path: str, content: bytes, warnings: list[FieldError]) -> Mapping[str, Any]:
    place = "algorithmSource.policy.file.path"
    try:
        document = unwrap_config_map(parse_document(content))
        if not isinstance(document.data, Mapping):
            raise ConversionError([FieldError("", "expected a Policy")])
        conversion = convert_policy(document.data)
    except DocumentError as failure:
        raise ConversionError([FieldError(place, f"{path}: {failure.error}")]) from None
    except ConversionError as failure:
        located = (FieldError(place, f"{path}: {document.located(error)}") for error in failure.errors)
        raise ConversionError(list(located)) from None
    warnings += (FieldError(place, f"{path}: {document.located(warning)}") for warning in conversion.warnings)
    (profile,) = conversion.data["profiles"]
    return {"profile": profile, "extenders": conversion.data.get("extenders")}


def _profile(data: Mapping[str, Any], given: Mapping[str, Any], algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """A profile with the algorithm's plugins, then those of the configuration."""
    profile = dict(given)
    of_algorithm = algorithm.get("profile", {})
    if data.get("schedulerName"):
        profile.setdefault("schedulerName", data["schedulerName"])
    plugins = _merged_sets(of_algorithm.get("plugins", {}), data.get("plugins", given.get("plugins")))
    if data.get("disablePreemption") is True and (isinstance(plugins, Mapping) or plugins is None):
        disabled = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}
        plugins = _merged_sets(plugins or {}, disabled)
    configs = _merged_configs(of_algorithm.get("pluginConfig", []), data.get("pluginConfig", given.get("pluginConfig")))
    for field, plugin, argument in (
        ("hardPodAffinitySymmetricWeight", "InterPodAffinity", "hardPodAffinityWeight"),
        ("bindTimeoutSeconds", "VolumeBinding", "bindTimeoutSeconds"),
    ):
        if data.get(field) not in (None, 0) and is_list(configs):
            configs = _merged_configs(configs, [{"name": plugin, "args": {argument: data[field]}}])
    values = {"plugins": plugins, "pluginConfig": configs}
    return profile | {name: value for name, value in values.items() if value not in (None, {}, [])}


def _merged_sets(first: Mapping[str, Any], second: Any) -> Any:
    """The plugin sets of both; a value that is no plugin set is kept for the decoder to report."""
    if second is None:
        return dict(first)
    if not isinstance(second, Mapping):
        return second
    merged = dict(first)
    for point, plugin_set in second.items():
        before = merged.get(point)
        merged[point] = joined_sets(before, plugin_set)
    return merged


def joined_sets(first: Any, second: Any) -> Any:
    """Two plugin sets as one; a value of another type is kept for the decoder to report."""
    if first is None or second is None:
        return second if first is None else first
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return second if isinstance(first, Mapping) else first
    joined = {**first, **second}
    for side in first.keys() & second.keys():
        if is_list(first[side]) and is_list(second[side]):
            joined[side] = [*first[side], *second[side]]
    return joined


def _merged_configs(first: Any, second: Any) -> Any:
    """The arguments of both; those of one plugin are merged."""
    if not is_list(second):
        return list(first) if second is None else second
    merged = list(first)
    for config in second:
        args = config.get("args") if isinstance(config, Mapping) else None
        for index, before in enumerate(merged):
            if isinstance(args, Mapping) and isinstance(before, Mapping) and before.get("name") == config.get("name"):
                former = before.get("args") or {}
                if isinstance(former, Mapping):
                    merged[index] = {**before, "args": {**former, **args}}
                    break
        else:
            merged.append(config)
    return merged
