"""From a configuration of Volcano to a KubeSchedulerConfiguration with one profile, ``volcano`` by default.

The plugins gang, predicates, nodeorder and binpack become plugins of the profile; the rest is the matter of the plugin
Volcano, whose args are the configuration.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kubestow import config
from kubestow.config.document import Document, DocumentError, parse_document, unwrap_config_map
from kubestow.errors import InputError
from kubestow_contrib.volcano.configuration import (
    FIELDS,
    NODE_ORDER_WEIGHTS,
    PREDICATES,
    ConfigurationProblem,
    VolcanoConfiguration,
    read_configuration,
    unsupported_plugins,
)

_THIS = [{"name": "Volcano"}]
#: Plugins that reserve or prepare what their filter has found, so that nothing of them works without it.
_INDIVISIBLE = ("VolumeBinding", "DynamicResources")


def converted(source: bytes, subject: str) -> dict[str, Any] | None:
    """The KubeSchedulerConfiguration, as plain data, for a configuration of Volcano, or a ConfigMap with one.

    None if it is something else: a configuration of Volcano has ``actions`` or ``tiers``, and no kind. Raises
    InputError, with file, line and field, for the first mistake.
    """
    document = _document(source)
    if document is None:
        return None
    try:
        return _convert(document)
    except ConfigurationProblem as problem:
        error = _located(document, problem)
        place = f"{subject}:{error.line}:{error.column}" if error.line else subject
        raise InputError(place, error.message, place=error.path) from None


def check(source: bytes) -> list[config.FieldError] | None:
    """The plugins of a configuration of Volcano that are not there, and the first mistake; empty if there is none.

    None if it is something else than a configuration of Volcano.
    """
    document = _document(source)
    if document is None:
        return None
    try:
        _convert(document)
    except ConfigurationProblem as problem:
        found = [_located(document, each) for each in (*unsupported_plugins(document.data), problem)]
        return list(dict.fromkeys(found))
    return []


def _document(source: bytes) -> Document | None:
    """A configuration of Volcano, None if it is something else."""
    try:
        document = unwrap_config_map(parse_document(source))
    except DocumentError:
        return None
    data = document.data
    is_volcano = isinstance(data, Mapping) and "kind" not in data and ("actions" in data or "tiers" in data)
    return document if is_volcano else None


def _convert(document: Document) -> dict[str, Any]:
    for duplicate in document.duplicates:
        raise ConfigurationProblem(duplicate.path, duplicate.message)
    return to_scheduler_configuration(document.data)


def _located(document: Document, problem: ConfigurationProblem) -> config.FieldError:
    return document.located(config.FieldError(problem.path, problem.problem))


def to_scheduler_configuration(data: Any) -> dict[str, Any]:
    """The configuration as plain data. Raises ConfigurationProblem for the first mistake."""
    configuration = read_configuration(data)
    predicates = configuration.plugin("predicates")
    if predicates is None or not configuration.enabled("predicates", "predicate"):
        removed = list(PREDICATES.values())  # all that predicates would call
    else:
        removed = [name for argument, name in PREDICATES.items() if predicates.arguments.get(argument) is False]
    whole = [name for name in removed if name in _INDIVISIBLE]
    filters = [{"name": name} for name in removed if name not in _INDIVISIBLE]
    evicts = {"preempt", "reclaim"} & set(configuration.actions)
    plugins: dict[str, Any] = {
        "multiPoint": {
            "enabled": [{"name": "GangScheduling"}] if configuration.enabled("gang", "jobReady") else [],
            "disabled": [{"name": name} for name in whole],
        },
        "queueSort": {"enabled": _THIS, "disabled": [{"name": "*"}]},
        "preEnqueue": {"enabled": _THIS},
        "preFilter": {"enabled": _THIS, "disabled": filters},
        "filter": {"disabled": filters},
        "permit": {"enabled": _THIS if configuration.enabled("gang", "jobReady") else []},
        "postFilter": {"enabled": _THIS if evicts else [], "disabled": [{"name": "DefaultPreemption"}]},
        "score": {"enabled": _scores(configuration), "disabled": [{"name": "*"}]},
    }
    args = [{"name": "Volcano", "args": {name: data[name] for name in FIELDS if name in data}}]
    if configuration.enabled("binpack", "nodeOrder"):
        args.append({"name": "VolcanoBinpack", "args": {"resources": configuration.binpack_weights}})
    if _weight(configuration, "mostrequested.weight"):
        resources = [{"name": name, "weight": 1} for name in ("cpu", "memory")]
        strategy = {"type": "MostAllocated", "resources": resources}
        args.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}})
    sets = {point: {kind: names for kind, names in of.items() if names} for point, of in plugins.items()}
    enabled = {point: copy.deepcopy(of) for point, of in sets.items() if of}
    profile = {"schedulerName": configuration.scheduler_name, "plugins": enabled, "pluginConfig": args}
    return {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}


def _scores(configuration: VolcanoConfiguration) -> list[dict[str, Any]]:
    """The scores with their weights; a weight of 0 disables a score."""
    weights: dict[str, int] = {}
    if configuration.enabled("nodeorder", "nodeOrder"):
        for argument, (_, name) in NODE_ORDER_WEIGHTS.items():
            weights[name] = weights.get(name, 0) + _weight(configuration, argument)
    if configuration.enabled("binpack", "nodeOrder"):
        option = configuration.plugin("binpack")
        assert option is not None
        weights["VolcanoBinpack"] = option.arguments.get("binpack.weight", 1)
    return [{"name": name, "weight": weight} for name, weight in weights.items() if weight]


def _weight(configuration: VolcanoConfiguration, argument: str) -> int:
    option = configuration.plugin("nodeorder")
    return 0 if option is None else int(option.arguments.get(argument, NODE_ORDER_WEIGHTS[argument][0]))
