"""LimitRanger: defaults and bounds of requests and limits, from the LimitRanges of a namespace."""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.api.formats.quantity import nanos
from kubestow.rules.admission import set_container_defaults
from kubestow.rules.resource_lists import ResourceList, pod_resources
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import DecodedObjects
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["LimitRanger"]

_ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRanger:
    def __init__(self, store: Store) -> None:
        self._ranges = DecodedObjects(store, "limitranges")

    def admit_pod(self, new: Object) -> None:
        """Set the default requests and limits of the pod's containers."""
        for limit_range in self._ranges.in_namespace(new["metadata"]["namespace"]):
            if notes := set_container_defaults(new["spec"], limit_range):
                annotations = new["metadata"].setdefault("annotations", {})
                annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"

    def validate_pod(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for a pod outside the bounds."""
        spec = new["spec"]
        for limit_range in self._ranges.in_namespace(new["metadata"]["namespace"]):
            problems: list[str] = []
            for item in (limit_range.get("spec") or {}).get("limits") or ():
                if item["type"] == "Container":
                    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
                        resources = container.get("resources") or {}
                        problems += _violations(item, resources.get("requests") or {}, resources.get("limits") or {})
                elif item["type"] == "Pod":
                    requests = pod_resources(spec, "requests", with_overhead=False)
                    limits = pod_resources(spec, "limits", with_overhead=False)
                    problems += _violations(item, requests, limits)
            _raise(kind, new, problems)

    def validate_claim(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for a PersistentVolumeClaim outside the bounds."""
        requests = (new["spec"].get("resources") or {}).get("requests") or {}
        for limit_range in self._ranges.in_namespace(new["metadata"]["namespace"]):
            problems: list[str] = []
            for item in _items(limit_range, "PersistentVolumeClaim"):
                bounds = {"type": item["type"], "min": item.get("min"), "max": item.get("max")}
                problems += _violations(bounds, requests, None)
            _raise(kind, new, problems)


def _items(limit_range: Object, type_: str) -> list[Object]:
    return [item for item in (limit_range.get("spec") or {}).get("limits") or () if item["type"] == type_]


def _raise(kind: Kind, new: Object, problems: list[str]) -> None:
    distinct = list(dict.fromkeys(problems))
    if distinct:
        raise forbidden(kind, new, distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")


def _violations(item: Object, requests: ResourceList, limits: ResourceList | None) -> Iterator[str]:
    """The bounds that requests and limits violate. Claims have no limits (None), so their requests are bounded."""
    for name, bound in sorted((item.get("min") or {}).items()):
        subject = f"minimum {name} usage per {item['type']} is {bound}"
        if name not in requests:
            yield f"{subject}.  No request is specified"
        elif nanos(requests[name]) < nanos(bound):
            yield f"{subject}, but request is {requests[name]}"
        elif limits is not None and name in limits and nanos(limits[name]) < nanos(bound):
            yield f"{subject}, but limit is {limits[name]}"
    for name, bound in sorted((item.get("max") or {}).items()):
        subject = f"maximum {name} usage per {item['type']} is {bound}"
        bounded, noun = (requests, "request") if limits is None else (limits, "limit")
        if name not in bounded:
            yield f"{subject}.  No {noun} is specified"
        elif nanos(bounded[name]) > nanos(bound):
            yield f"{subject}, but {noun} is {bounded[name]}"
        elif name in requests and nanos(requests[name]) > nanos(bound):
            yield f"{subject}, but request is {requests[name]}"
    for name, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        subject = f"{name} max limit to request ratio per {item['type']} is {bound}"
        request, limit = nanos(requests.get(name, "0")), nanos((limits or {}).get(name, "0"))
        if not request:
            yield f"{subject}, but no request is specified or request is 0"
        elif not limit:
            yield f"{subject}, but no limit is specified or limit is 0"
        elif limit * 10**9 > nanos(bound) * request:
            yield f"{subject}, but provided ratio is {limit / request:f}"
