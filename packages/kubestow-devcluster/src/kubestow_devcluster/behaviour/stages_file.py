"""Reading a file of stages: a YAML stream of rules of ``kubestow.dev/v1alpha1`` and Stages of KWOK."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from kubestow.errors import InputError
from kubestow_devcluster.behaviour.kwok_stages import KWOK_API_VERSION, KwokStage, read_kwok_stage
from kubestow_devcluster.behaviour.pod_behaviour import PodBehaviourRule, PodBehaviourRules
from kubestow_devcluster.behaviour.resource_usage import NodeUsageRule, PodUsageRule, ResourceUsageRules

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
    try:
        # The C loader parses a large file many times faster.
        documents = list(yaml.load_all(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except OSError as error:
        raise InputError(subject, f"cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InputError(subject, f"not valid YAML: {' '.join(str(error).split())}") from None
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
