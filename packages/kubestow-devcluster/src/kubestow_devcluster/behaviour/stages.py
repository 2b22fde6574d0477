"""A file of stages: a YAML stream of rules of ``kubestow.dev/v1alpha1``, and of Stages of KWOK.

A Stage (kwok.x-k8s.io/v1alpha1) is a change that is made to a pod some time after it has reached a state. Read are
Stages of pods, with selectors by labels, annotations and jq paths, fixed delays, weights, events, finalizers, deletion,
and status templates that are plain YAML. jq programs, CEL expressions and Go templates are rejected: a stage that would
do something else than with KWOK must not be applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from kubestow.api.formats.yaml_documents import load_yaml, yaml_documents
from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow_devcluster.apiserver.schema.types import UnmarshalTypeError, struct_of
from kubestow_devcluster.behaviour.pod_behaviour import PodBehaviourRule, PodBehaviourRules
from kubestow_devcluster.behaviour.resource_usage import NodeUsageRule, PodUsageRule, ResourceUsageRules

KWOK_API_VERSION = "kwok.x-k8s.io/v1alpha1"

#: A step of a jq path: ``.name``, ``["name"]``, ``[]``, or ``| select(.name == "value") |``.
_STEP = re.compile(
    r"""\.?(?:
        (?P<field>[A-Za-z_][A-Za-z0-9_]*)
      | \[\s*"(?P<key>[^"\\]*)"\s*\]
      | (?P<items>\[\s*\])
    )
    | \s*\|\s*select\(\s*\.(?P<select>[A-Za-z_][A-Za-z0-9_]*)\s*==\s*"(?P<value>[^"\\]*)"\s*\)\s*\|\s*""",
    re.VERBOSE,
)
_POD_STATUS = struct_of("V1PodStatus")
_Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class _Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: _Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _steps(self.key)
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(f"{self.operator} of {self.key!r}: In and NotIn need values, the others take none")

    def matches(self, pod: dict[str, Any]) -> bool:
        found = [value for value in _values_at(pod, _steps(self.key)) if value is not None]
        if self.operator in ("Exists", "DoesNotExist"):
            return bool(found) == (self.operator == "Exists")
        texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in found]
        is_in = any(text in self.values for text in texts)
        return is_in == (self.operator == "In")


class _Selector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str] = {}
    match_annotations: dict[str, str] = {}
    match_expressions: tuple[_Requirement, ...] = ()


class _Delay(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    duration_milliseconds: int = 0
    jitter_duration_milliseconds: int | None = None


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["Normal", "Warning"] = "Normal"
    reason: str = ""
    message: str = ""


class _Finalizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: str


class _Finalizers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: tuple[_Finalizer, ...] = ()
    remove: tuple[_Finalizer, ...] = ()
    empty: bool = False


class _Next(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    status_template: str = ""
    status_subresource: Literal["status"] = "status"
    event: _Event | None = None
    finalizers: _Finalizers = _Finalizers()
    delete: bool = False

    def __post_init__(self) -> None:
        if "{{" in self.status_template:
            raise ValueError("Go templates are not supported, expected plain YAML without {{ }}")
        self.status()

    def status(self) -> dict[str, Any]:
        """The fields of the pod's status that the stage sets. Raises ValueError for a template that is no mapping."""
        try:
            status = load_yaml(self.status_template, "statusTemplate") or {}
        except InputError as error:
            raise ValueError(str(error)) from None
        if not isinstance(status, dict):
            raise ValueError("statusTemplate: expected a mapping of status fields")
        unknown: list[str] = []
        try:
            read: dict[str, Any] = _POD_STATUS.read(status, unknown)
        except UnmarshalTypeError as error:
            raise ValueError(f"statusTemplate: {error}") from None
        if unknown:
            raise ValueError(f"statusTemplate: unknown field {unknown[0]!r}")
        return read


class _ResourceRef(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    kind: Literal["Pod"]
    api_group: Literal["v1"] = "v1"


class _Spec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    resource_ref: _ResourceRef
    next: _Next
    selector: _Selector | None = None
    weight: int = 0
    delay: _Delay = _Delay()
    immediate_next_stage: bool = False


class _Stage(msgspec.Struct, frozen=True, rename="camel"):
    spec: _Spec
    metadata: dict[str, Any] = {}


class KwokStage:
    """One Stage of pods."""

    def __init__(self, name: str, spec: _Spec) -> None:
        self.name, self.next, self.weight = name, spec.next, spec.weight
        self._selector, self._delay = spec.selector, spec.delay

    def matches(self, pod: dict[str, Any]) -> bool:
        """Whether the stage applies to a pod in its current state; never without a selector."""
        selector, metadata = self._selector, pod["metadata"]
        return (
            selector is not None
            and selector.match_labels.items() <= (metadata.get("labels") or {}).items()
            and selector.match_annotations.items() <= (metadata.get("annotations") or {}).items()
            and all(requirement.matches(pod) for requirement in selector.match_expressions)
        )

    def delay(self, random: Random) -> float:
        """Seconds until the change is due: the duration, or a random time from there to the jitter duration."""
        least, greatest = self._delay.duration_milliseconds, self._delay.jitter_duration_milliseconds
        if greatest is None:
            return least / 1000
        # KWOK: a jitter duration below the duration replaces it.
        return random.uniform(min(least, greatest), greatest) / 1000

    def change_finalizers(self, finalizers: Sequence[str]) -> list[str]:
        """The finalizers of a pod after the change."""
        change = self.next.finalizers
        removed = {finalizer.value for finalizer in change.remove}
        kept = [] if change.empty else [name for name in finalizers if name not in removed]
        return [*kept, *(one.value for one in change.add if one.value not in kept)]


def read_kwok_stage(document: dict[str, Any]) -> KwokStage:
    """Raises msgspec.ValidationError for a Stage that is invalid, or uses what is not supported."""
    stage = msgspec.convert(document, _Stage)
    return KwokStage(str(stage.metadata.get("name", "")), stage.spec)


def choose_stage(stages: Sequence[KwokStage], pod: dict[str, Any], random: Random) -> KwokStage | None:
    """One of the stages that match a pod, at random by weight; without any weight all are equally likely."""
    matching = [stage for stage in stages if stage.matches(pod)]
    if not matching:
        return None
    if len(matching) == 1:
        return matching[0]
    weights = [max(stage.weight, 0) for stage in matching]
    return random.choices(matching, weights if any(weights) else None)[0]


class _Step(NamedTuple):
    """A step of a path: the field ``name``, all ``items`` of a list, or a filter by the ``value`` of the field."""

    kind: Literal["field", "items", "select"]
    name: str = ""
    value: str = ""


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[_Step, ...]:
    """The steps of a jq path. Raises ValueError for any other jq program."""
    steps: list[_Step] = []
    position, text = 0, path.strip()
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or not text.startswith("."):
            raise ValueError(
                f'{path!r}: expected a path such as .status.phase, .metadata.annotations["name"] or'
                ' .status.conditions.[] | select( .type == "Ready" ) | .status'
            )
        if match["select"] is not None:
            steps.append(_Step("select", match["select"], match["value"]))
        elif match["items"] is not None:
            steps.append(_Step("items"))
        else:
            steps.append(_Step("field", match["field"] if match["field"] is not None else match["key"]))
        position = match.end()
    return tuple(steps)


def _values_at(value: Any, steps: Sequence[_Step]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step.kind == "items":
        for item in value if isinstance(value, list) else ():
            yield from _values_at(item, rest)
    elif isinstance(value, dict):
        if step.kind == "field":
            yield from _values_at(value.get(step.name), rest)
        elif value.get(step.name) == step.value:
            yield from _values_at(value, rest)


API_VERSION = "kubestow.dev/v1alpha1"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stages:
    """How simulated pods run and what they use; without rules, as their specs and annotations say."""

    behaviour: PodBehaviourRules = field(default_factory=PodBehaviourRules)
    usage: ResourceUsageRules = field(default_factory=ResourceUsageRules)
    pod_stages: tuple[KwokStage, ...] = ()


NO_STAGES = Stages()


def read_stages(path: Path) -> Stages:
    """Read a file of stages. Raises InputError, which names the document and the field."""
    subject = str(path)
    documents = [document.data for document in yaml_documents(read_file(path), subject)]
    behaviour: list[PodBehaviourRule] = []
    pods: list[PodUsageRule] = []
    nodes: list[NodeUsageRule] = []
    stages: list[KwokStage] = []
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        document = document if isinstance(document, dict) else {}
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        place = f"document {number} ({name})" if isinstance(name, str) else f"document {number}"
        match document.get("apiVersion"), document.get("kind"):
            case (api_version, "PodBehaviour") if api_version == API_VERSION:
                behaviour.append(_spec(document, PodBehaviourRule, subject, place))
            case (api_version, "PodUsage") if api_version == API_VERSION:
                pods.append(_spec(document, PodUsageRule, subject, place))
            case (api_version, "NodeUsage") if api_version == API_VERSION:
                nodes.append(_spec(document, NodeUsageRule, subject, place))
            case (api_version, "Stage") if api_version == KWOK_API_VERSION:
                try:
                    stages.append(read_kwok_stage(document))
                except (msgspec.ValidationError, ValueError) as error:
                    raise InputError(subject, str(error), place=place) from None
            case (api_version, kind):
                expected = f"PodBehaviour, PodUsage or NodeUsage of {API_VERSION}, or Stage of {KWOK_API_VERSION}"
                raise InputError(subject, f"expected {expected}, got {kind!r} of {api_version!r}", place=place)
    return Stages(PodBehaviourRules(behaviour), ResourceUsageRules(pods, nodes), tuple(stages))


class _Document(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    spec: Any
    metadata: dict[str, Any] = {}


def _spec(document: Any, rule: type[_T], subject: str, place: str) -> _T:
    try:
        return msgspec.convert(msgspec.convert(document, _Document).spec, rule)
    except msgspec.ValidationError as error:
        raise InputError(subject, str(error).replace("`$.", "`spec.").replace("`$`", "`spec`"), place=place) from None
