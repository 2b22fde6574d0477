"""The operations of a workload, with the fields and defaults of scheduler_perf.

A field ``<name>_param`` holds the name of a workload parameter with a leading ``$``; :func:`resolved` replaces it with
the value. Paths of templates are relative to the workload file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from kubestow.api.formats.duration import Duration
from kubestow.errors import InputError

Parameters = Mapping[str, Any]
"""The parameters of a workload by name: integers, strings, booleans or numbers."""


class NodeAllocatableStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Sets allocatable resources of nodes, and creates a CSINode for each: drivers with their limits."""

    node_allocatable: dict[str, str] = {}
    csi_node_allocatable: dict[str, dict[str, Any]] = {}
    migrated_plugins: list[str] = []


class LabelNodeStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Labels the nodes with the values in turn."""

    label_key: str
    label_values: list[str] = []


class UniqueNodeLabelStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Labels every node with a value of its own."""

    label_key: str


class _Operation(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The base of all operations."""


class CreateNodes(_Operation, tag_field="opcode", tag="createNodes", frozen=True):
    """Creates nodes; at most one strategy may be given."""

    count: int = 0
    count_param: str = ""
    node_template_path: str = ""
    node_allocatable_strategy: NodeAllocatableStrategy | None = None
    label_node_prepare_strategy: LabelNodeStrategy | None = None
    unique_node_label_strategy: UniqueNodeLabelStrategy | None = None
    template_params: dict[str, Any] = {}


class CreateNamespaces(_Operation, tag_field="opcode", tag="createNamespaces", frozen=True):
    """Creates the namespaces ``<prefix>-0`` to ``<prefix>-<count - 1>``."""

    prefix: str
    count: int = 0
    count_param: str = ""
    namespace_template_path: str = ""


class CreatePods(_Operation, tag_field="opcode", tag="createPods", frozen=True):
    """Creates pods, and waits until they are scheduled unless ``skip_wait_to_completion`` is set.

    In the steady state, ``count`` pods are created, and each is deleted and replaced by another once it is scheduled,
    for ``duration``.
    """

    count: int = 0
    count_param: str = ""
    count_multiplier_param: str = ""
    steady_state: bool = False
    steady_state_param: str = ""
    duration: str | int = ""
    duration_param: str = ""
    collect_metrics: bool = False
    namespace: str = ""
    pod_template_path: str = ""
    skip_wait_to_completion: bool = False
    persistent_volume_template_path: str = ""
    persistent_volume_claim_template_path: str = ""
    template_params: dict[str, Any] = {}


class CreatePodSets(_Operation, tag_field="opcode", tag="createPodSets", frozen=True):
    """Runs ``create_pods_op`` in the namespaces ``<namespace_prefix>-0`` to ``<namespace_prefix>-<count - 1>``."""

    namespace_prefix: str
    create_pods_op: CreatePods
    count: int = 0
    count_param: str = ""


class DeletePods(_Operation, tag_field="opcode", tag="deletePods", frozen=True):
    """Deletes the pods of a namespace, all at once or so many per second."""

    namespace: str
    label_selector: dict[str, str] = {}
    skip_wait_to_completion: bool = False
    delete_pods_per_second: int = 0


class Churn(_Operation, tag_field="opcode", tag="churn", frozen=True):
    """Creates objects (and deletes them, in mode ``recreate``) in the background until the workload ends."""

    mode: Literal["create", "recreate"]
    template_paths: list[str]
    number: int = 0
    interval_milliseconds: int = 500
    namespace: str = ""


class Barrier(_Operation, tag_field="opcode", tag="barrier", frozen=True):
    """Waits until the pods created so far are scheduled, or have been attempted at least once."""

    namespaces: list[str] = []
    label_selector: dict[str, str] = {}
    stage_requirement: Literal["Scheduled", "Attempted", ""] = "Scheduled"


class Sleep(_Operation, tag_field="opcode", tag="sleep", frozen=True):
    """Waits for a fixed time."""

    duration: str | int = ""
    duration_param: str = ""


class StartCollectingMetrics(_Operation, tag_field="opcode", tag="startCollectingMetrics", frozen=True):
    """Begins a measured phase, which counts the pods of these namespaces and labels."""

    namespaces: list[str]
    name: str = ""
    label_selector: dict[str, str] = {}


class StopCollectingMetrics(_Operation, tag_field="opcode", tag="stopCollectingMetrics", frozen=True):
    """Ends the measured phase."""


class CreateAny(_Operation, tag_field="opcode", tag="createAny", frozen=True):
    """Creates objects of any kind."""

    template_path: str
    namespace: str = ""
    count: int = 1
    count_param: str = ""
    template_params: dict[str, Any] = {}


class UpdateAny(_Operation, tag_field="opcode", tag="updateAny", frozen=True):
    """Replaces objects and their status, all at once or so many per second."""

    template_path: str
    namespace: str = ""
    count: int = 1
    count_param: str = ""
    update_per_second: int = 0
    subresources: list[str] = []
    template_params: dict[str, Any] = {}


class CreateResourceClaims(_Operation, tag_field="opcode", tag="createResourceClaims", frozen=True):
    """Creates ResourceClaims."""

    namespace: str
    template_path: str
    count: int = 0
    count_param: str = ""


class CreateResourceDriver(_Operation, tag_field="opcode", tag="createResourceDriver", frozen=True):
    """Publishes a ResourceSlice with so many devices for each node whose name matches the glob pattern ``nodes``."""

    driver_name: str
    nodes: str
    max_claims_per_node: int = 0
    max_claims_per_node_param: str = ""


class AllocateResourceClaims(_Operation, tag_field="opcode", tag="allocResourceClaims", frozen=True):
    """Allocates the existing claims of a namespace (default: of all namespaces) without pods."""

    namespace: str = ""


Operation = (
    CreateNodes
    | CreateNamespaces
    | CreatePods
    | CreatePodSets
    | DeletePods
    | Churn
    | Barrier
    | Sleep
    | StartCollectingMetrics
    | StopCollectingMetrics
    | CreateAny
    | UpdateAny
    | CreateResourceClaims
    | CreateResourceDriver
    | AllocateResourceClaims
)
"""Any operation; ``opcode`` tells which one."""

OPCODES: tuple[str, ...] = tuple(str(member.__struct_config__.tag) for member in get_args(Operation))

#: The fields, of any operation, that must not be negative.
_NOT_NEGATIVE = (
    *("count", "max_claims_per_node", "number"),
    *("delete_pods_per_second", "update_per_second", "interval_milliseconds"),
)
#: How an error describes the values that a field takes.
_EXPECTED = {int: "an integer", str: "a string", bool: "true or false"}


def opcode(operation: Operation) -> str:
    """The opcode of an operation, as it is spelled in files."""
    return str(operation.__struct_config__.tag)


def resolved(operation: Operation, parameters: Parameters, *, subject: str) -> Operation:
    """The operation with the values of its parameters.

    Raises InputError, naming ``subject`` (the file and the workload), for a parameter that is missing or of the wrong
    type, and for values that no operation of this kind can have.
    """
    changes: dict[str, Any] = {}
    place = f"{subject}: {opcode(operation)}"
    for name in operation.__struct_fields__:
        reference = getattr(operation, name)
        if name.endswith("_param") and name != "count_multiplier_param" and reference:
            base = name.removesuffix("_param")
            hint = get_type_hints(type(operation))[base]
            changes[base] = _value(reference, parameters, hint if isinstance(hint, type | UnionType) else object, place)
    if isinstance(operation, CreatePods) and operation.count_multiplier_param:
        count = changes.get("count", operation.count)
        changes["count"] = count * _value(operation.count_multiplier_param, parameters, int, place)
    templates: dict[str, Any] = getattr(operation, "template_params", {})
    if templates:
        changes["template_params"] = {
            key: _value(value, parameters, object, f"{place}: templateParams")
            if isinstance(value, str) and value[:1] == "$"
            else value
            for key, value in templates.items()
        }
    result = msgspec.structs.replace(operation, **changes)
    problem = _problem(result)
    if problem:
        raise InputError(subject, problem, place=opcode(operation))
    return result


def _value(reference: str, parameters: Parameters, expected: Any, place: str) -> Any:
    """The value of the parameter ``$name``."""
    name = reference.removeprefix("$")
    if name == reference:
        raise InputError(place, f"expected a parameter such as $initNodes, got {reference!r}")
    if name not in parameters:
        known = ", ".join(f"${known}" for known in sorted(parameters)) or "none"
        raise InputError(place, f"parameter ${name} is not set; the workload has {known}")
    value = parameters[name]
    accepted = isinstance(value, expected) and not (expected is int and isinstance(value, bool))
    if not accepted:
        text = _EXPECTED.get(expected, "a duration such as 10s")
        raise InputError(place, f"parameter ${name}: expected {text}, got {value!r}")
    return value


def _problem(operation: Operation) -> str:
    """What is wrong with the values of an operation; empty if nothing is."""
    for name in _NOT_NEGATIVE:
        if getattr(operation, name, 0) < 0:
            first, *rest = name.split("_")
            spelled = first + "".join(part.title() for part in rest)
            return f"{spelled}: expected no negative number, got {getattr(operation, name)}"
    match operation:
        case CreatePods(collect_metrics=True, skip_wait_to_completion=True):
            return "collectMetrics and skipWaitToCompletion cannot be set together"
        case CreatePods(steady_state=True, skip_wait_to_completion=True):
            return "steadyState and skipWaitToCompletion cannot be set together"
        case CreatePods(steady_state=True) if not seconds(operation.duration) > 0:
            return f"duration: expected a positive duration in a steady state, got {operation.duration!r}"
        case CreatePods() if bool(operation.persistent_volume_template_path) != bool(
            operation.persistent_volume_claim_template_path
        ):
            return "persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath must be set together"
        case Churn(mode="recreate", number=0):
            return "number: expected at least 1 in mode recreate"
        case Churn(template_paths=[]):
            return "templatePaths: expected at least one template"
        case StartCollectingMetrics(namespaces=[]):
            return "namespaces: expected at least one namespace"
        case Sleep() if not seconds(operation.duration) >= 0:
            return f"duration: expected a duration such as 10s, got {operation.duration!r}"
        case CreateNodes():
            strategies = (
                operation.node_allocatable_strategy,
                operation.label_node_prepare_strategy,
                operation.unique_node_label_strategy,
            )
            if sum(strategy is not None for strategy in strategies) > 1:
                return "at most one strategy can be set"
    return ""


def seconds(duration: str | int) -> float:
    """A duration in seconds; a plain number stands for nanoseconds, as in Go. Not a number if it does not parse."""
    if isinstance(duration, int):
        return duration / 1e9
    try:
        return Duration.parse(duration).seconds
    except ValueError:
        return float("nan")
