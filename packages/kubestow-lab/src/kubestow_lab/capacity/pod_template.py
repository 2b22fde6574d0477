"""The pod template of a capacity report: cluster-capacity's defaults, validation and requirements.

A template for cluster-capacity gets the few defaults that this program sets and no other; the API server's validation
then refuses what a pod may not lack. Problems are spelled like ``Required value: spec.containers[0].imagePullPolicy``.
Other templates are completed first, as the API server and admission would complete the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from fractions import Fraction
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.api.formats import quantity
from kubestow.api.formats.canonical_quantity import canonical, total
from kubestow.api.formats.names import dns1123_label_errors, dns1123_subdomain_errors, is_extended_resource
from kubestow.api.meta import convert, without_nulls
from kubestow.engine.input.admission import Admission
from kubestow.errors import InputError, InvalidObject, InvalidQuantity

Object = dict[str, Any]

_NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_TOLERATION_OPERATORS = ("Equal", "Exists", "")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")


class PodTemplate:
    """A pod whose instances are placed. ``manifest`` has the defaults and quantities in canonical form."""

    def __init__(self, manifest: Mapping[str, Any], subject: str, admission: Admission | None = None) -> None:
        """With ``admission``, the pod is completed by the API server's defaults and by it.

        Raises InputError, naming the file ``subject``, with every problem that validation finds.
        """
        try:
            self.manifest = _with_defaults(manifest if admission is None else _completed(manifest, admission))
            spec = self.manifest["spec"]
            problems = list(_problems(self.manifest))
        except InvalidObject as error:
            raise InputError(subject, str(error)) from None
        except (AttributeError, TypeError, KeyError) as error:
            raise InputError(subject, f"not a pod: {type(error).__name__}: {error}") from None
        if problems:
            raise InputError(subject, f'Invalid pod: "{", ".join(problems)}"')
        try:
            owners = [*spec.get("containers", ()), *spec.get("initContainers", ()), spec]
            parts = [(owner.get("resources") or {}).get(part) for owner in owners for part in ("requests", "limits")]
            for amounts in filter(None, (*parts, spec.get("overhead"))):
                amounts.update({name: canonical(str(amount)) for name, amount in amounts.items()})
            self.pod: Pod = convert(Pod, self.manifest)
        except InvalidObject as error:
            raise InputError(subject, f"not a pod: {error}") from None

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.pod.metadata.name

    def instance(self, index: int) -> Pod:
        """The pod of an instance, ``<name>-<index>``."""
        metadata = self.pod.metadata
        name = f"{metadata.name}-{index}"
        metadata = msgspec.structs.replace(metadata, name=name, uid=f"capacity/{metadata.namespace}/{name}")
        return msgspec.structs.replace(self.pod, metadata=metadata)

    def with_priority(self, admission: Admission) -> PodTemplate:
        """The template with the priority of its priority class; the manifest stays. Raises InputError."""
        spec = self.pod.spec
        fields: Object = {"priorityClassName": spec.priority_class_name}
        try:
            if spec.priority is None:
                admission.set_priority(fields)
        except InvalidObject as error:
            raise InputError(f"pod template {self.name}", str(error)) from None
        policy = spec.preemption_policy or fields.get("preemptionPolicy")
        spec = msgspec.structs.replace(spec, priority=fields.get("priority", spec.priority), preemption_policy=policy)
        template = copy(self)
        template.pod = msgspec.structs.replace(self.pod, spec=spec)
        return template

    def requirements(self) -> Object:
        """The pod's entry of ``spec.podRequirements``: what its containers request, init containers not counted."""
        requests: dict[str, list[str]] = {}
        for container in self.manifest["spec"]["containers"]:
            for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
                requests.setdefault(name, []).append(str(amount))
        scalars = {name: quantity.units(total(a)) for name, a in requests.items() if name not in _NATIVE_RESOURCES}
        return {
            "podName": self.name,
            "resources": {
                "primaryResources": {
                    "cpu": total(requests.get("cpu", ())),
                    "memory": total(requests.get("memory", ())),
                    "nvdia.com/gpu": "0",  # QUIRK: cluster-capacity's spelling, and it is never counted
                },
                "scalarResources": scalars or None,
            },
            "nodeSelectors": self.manifest["spec"].get("nodeSelector") or None,
        }


_LATEST = "latest"


def _completed(manifest: Mapping[str, Any], admission: Admission) -> Object:
    """The manifest of a pod as the API server stores it. Raises InvalidObject for one that it refuses."""
    pod: Object = without_nulls(msgspec.json.decode(msgspec.json.encode(manifest)))
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    convert(Pod, pod)  # names the field of a wrong type
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        tag = str(container.get("image") or "").rpartition("/")[2].partition("@")[0].partition(":")[2] or _LATEST
        pinned = "@" in str(container.get("image") or "") or tag != _LATEST
        container.setdefault("imagePullPolicy", "IfNotPresent" if pinned else "Always")
        container.setdefault("terminationMessagePolicy", "File")
    namespace = metadata.get("namespace") or "default"
    admission.admit(pod, namespace)
    if refusal := admission.limit_range_refusal(pod["spec"], namespace):
        raise InvalidObject(f'pods "{metadata.get("name", "")}" is forbidden: {refusal}')
    return pod


def _with_defaults(manifest: Mapping[str, Any]) -> Object:
    pod: Object = msgspec.json.decode(msgspec.json.encode(manifest))
    metadata: Object = pod.setdefault("metadata", {})
    spec: Object = pod.setdefault("spec", {})
    metadata["namespace"] = metadata.get("namespace") or "default"
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    spec["dnsPolicy"] = spec.get("dnsPolicy") or "ClusterFirst"
    spec["restartPolicy"] = spec.get("restartPolicy") or "Always"
    for container in spec.get("containers") or ():
        container["terminationMessagePolicy"] = container.get("terminationMessagePolicy") or "FallbackToLogsOnError"
        container.setdefault("resources", {})
    spec.pop("nodeName", None)
    for name in [name for name, value in spec.items() if value in ([], {}, None) and name != "containers"]:
        del spec[name]
    return {"kind": "Pod", "apiVersion": "v1", **pod, "status": {}}


# -- validation ----------------------------------------------------------------------------------------------------


def _problems(pod: Object) -> Iterator[str]:
    """The problems that the API server's validation would find, in its order."""
    metadata, spec = pod["metadata"], pod["spec"]
    if not metadata.get("name"):
        yield "Required value: metadata.name"
    elif dns1123_subdomain_errors(metadata["name"]):
        yield "Invalid value: metadata.name"
    if dns1123_label_errors(metadata["namespace"]):
        yield "Invalid value: metadata.namespace"
    if spec.get("terminationGracePeriodSeconds") is None:
        yield "Required value: spec.terminationGracePeriodSeconds"
    if not spec.get("containers"):
        yield "Required value: spec.containers"
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container_problems(container, f"spec.{part}[{index}]")
    yield from _supported(spec["restartPolicy"], _RESTART_POLICIES, "spec.restartPolicy")
    yield from _supported(spec["dnsPolicy"], _DNS_POLICIES, "spec.dnsPolicy")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        path = f"spec.tolerations[{index}]"
        yield from _supported(toleration.get("operator") or "", _TOLERATION_OPERATORS, f"{path}.operator")
        yield from _supported(toleration.get("effect") or "", _EFFECTS, f"{path}.effect")


def _container_problems(container: Object, path: str) -> Iterator[str]:
    if not container.get("name"):
        yield f"Required value: {path}.name"
    elif dns1123_label_errors(container["name"]):
        yield f"Invalid value: {path}.name"
    if not container.get("image"):
        yield f"Required value: {path}.image"
    policies = (("terminationMessagePolicy", _MESSAGE_POLICIES), ("imagePullPolicy", _PULL_POLICIES))
    for field, supported in policies:
        if not container.get(field):
            yield f"Required value: {path}.{field}"
        else:
            yield from _supported(container[field], supported, f"{path}.{field}")
    yield from _resource_problems(container.get("resources") or {}, f"{path}.resources")


def _resource_problems(resources: Mapping[str, Any], path: str) -> Iterator[str]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if _amount(amount) is None or _amount(amount) < 0:  # type: ignore[operator]
                yield f"Invalid value: {path}.{part}[{name}]"
    for name, amount in requests.items():
        requested, limit = _amount(amount), _amount(limits[name]) if name in limits else None
        if requested is None:
            continue
        if is_extended_resource(name) and name not in limits:
            yield f"Required value: {path}.limits"
        elif limit is not None and (requested > limit or (is_extended_resource(name) and requested != limit)):
            yield f"Invalid value: {path}.requests"


def _amount(value: Any) -> Fraction | None:
    try:
        return quantity.parse(value)
    except (InvalidQuantity, TypeError):
        return None


def _supported(value: str, supported: Iterable[str], path: str) -> Iterator[str]:
    if value not in supported:
        yield f"Unsupported value: {path}"


_NAME = "cluster-capacity-stub-container"
_IMAGE = "gcr.io/google_containers/pause:2.0"
_NODE_SELECTOR = "openshift.io/node-selector"
_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


def limit_range_pod(namespace: Object, limit_ranges: Iterable[Object]) -> Object:
    """The pod of a namespace with its LimitRanges. Raises InvalidQuantity."""
    least: dict[str, tuple[Fraction, str]] = {}
    for limit_range in limit_ranges:
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            if limit.get("type") != "Pod":
                continue
            for name, amount in (limit.get("max") or {}).items():
                value = quantity.parse(amount)
                if name in _RESOURCES and (name not in least or value < least[name][0]):
                    least[name] = value, canonical(str(amount))
    amounts = {name: least[name][1] for name in _RESOURCES if name in least}
    container: Object = {
        "name": _NAME,
        "image": _IMAGE,
        "imagePullPolicy": "Always",
        "resources": {"limits": amounts, "requests": dict(amounts)} if amounts else {},
    }
    metadata = namespace.get("metadata") or {}
    spec: Object = {"containers": [container], "dnsPolicy": "Default", "restartPolicy": "OnFailure"}
    selector = (metadata.get("annotations") or {}).get(_NODE_SELECTOR, "")
    if selector:
        pairs = (part.partition("=") for part in selector.split(","))
        spec["nodeSelector"] = {key.strip(): value.strip() for key, _, value in pairs}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": metadata.get("name", "")},
        "spec": spec,
    }
