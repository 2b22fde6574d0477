"""Requests for objects: pods, ResourceClaims, merge patches of any resource, and lists of whole collections.

Each function for a single object sends one request; the caller handles conflicts and retries
(:mod:`kubestow.scheduling.api_calls.dispatcher` for pods). Bodies are those of kube-scheduler, plus the uid in every
write to a pod, so that a write never hits another pod of the same name: the API server checks it as a precondition of
a binding and as an immutable field in a patch. Lists are read in pages of one resourceVersion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from kubestow.api.core import Pod, PodCondition, PodExtendedResourceClaimStatus
from kubestow.api.json_text import UNDECODABLE, decode_readable, readable_json
from kubestow.api.meta import APIObject, ObjectMeta, decode
from kubestow.api.resource import ResourceClaim
from kubestow.client.rest.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Transport
from kubestow.client.served_versions import ServedVersions
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, InvalidObject, Unreachable
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, Resource

_encode = msgspec.json.Encoder().encode
_CLAIMS = resource_of(ResourceClaim)


class PodClient:
    """Reads and writes single pods. Methods raise APIError and Unreachable."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """POST the pod's binding, once. After a lost response only :meth:`read_pod` shows whether it was made.

        The same holds for a response that is not a Status of success, as that of a proxy: it raises Unreachable.
        """
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node_name},
        }
        answer = await self._transport.request("POST", f"{_path(pod)}/binding", _encode(binding))
        if not _is_success(answer):
            problem = f"the binding of pod {pod.namespace}/{pod.name} was not answered with a Status of success"
            raise Unreachable(self._transport.server, problem)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """GET the pod, without resourceVersion and thus not from a cache; None if it is deleted or has another uid."""
        try:
            found = decode(Pod, await self._transport.request("GET", _path(pod)))
        except APIError as error:
            if error.code != 404:
                raise
            return None
        except InvalidObject as error:
            raise Unreachable(self._transport.server, f"malformed pod {pod.namespace}/{pod.name}: {error}") from None
        return found if found.metadata.uid == pod.uid else None

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """PATCH the pod's status (strategic merge)."""
        body = _encode({"metadata": {"uid": pod.uid}, "status": _status(patch)})
        await self._transport.request("PATCH", f"{_path(pod)}/status", body, content_type=STRATEGIC_MERGE_PATCH)

    async def delete_pod(self, pod: ObjectReference) -> None:
        """DELETE the pod with its default grace period. A pod that is deleted or has another uid is not an error."""
        await _delete(self._transport, _path(pod), pod.uid)


class _VersionInfo(msgspec.Struct, rename="camel"):
    git_version: str = ""


def server_version(body: bytes) -> str:
    """The version in the body of ``GET /version``, such as ``v1.36.2``; "" if it has none."""
    try:
        return msgspec.json.decode(body, type=_VersionInfo).git_version
    except UNDECODABLE:
        return ""


class _Status(msgspec.Struct):
    kind: str = ""
    status: str = ""


def _is_success(answer: bytes) -> bool:
    try:
        found = msgspec.json.decode(answer, type=_Status)
    except UNDECODABLE:
        return False
    return (found.kind, found.status) == ("Status", "Success")


async def _delete(transport: Transport, path: str, uid: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
    try:
        await transport.request("DELETE", path, _encode(options))
    except APIError as error:
        if error.code not in (404, 409):
            raise


def _path(pod: ObjectReference) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _status(patch: PodStatusPatch) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if patch.conditions:
        status["conditions"] = [_condition(condition) for condition in patch.conditions]
    if patch.nominated_node_name is not None:
        status["nominatedNodeName"] = patch.nominated_node_name or None  # null removes the field
    return status


def _condition(condition: PodCondition) -> dict[str, Any]:
    """A complete condition: in a strategic merge patch a missing field keeps the value of the old condition."""
    fields = {
        "lastProbeTime": None,
        "lastTransitionTime": condition.last_transition_time,
        "message": condition.message,
        "observedGeneration": condition.observed_generation or None,
        "reason": condition.reason,
        "status": condition.status,
        "type": condition.type,
    }
    return {key: value for key, value in fields.items() if value is not None or key == "lastProbeTime"}


class ResourceClaimClient:
    """Implements :class:`kubestow.framework.handle.ResourceClaimWriter`, in the version that the server serves."""

    def __init__(self, transport: Transport, versions: ServedVersions) -> None:
        self._transport, self._versions = transport, versions

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """GET a claim."""
        return self._decoded(await self._transport.request("GET", f"{self._path(namespace)}/{name}"))

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """POST a claim."""
        body = _encode(self._versions.sent(_CLAIMS, manifest))
        return self._decoded(await self._transport.request("POST", self._path(namespace), body))

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """PATCH a claim or its subresource (strategic merge)."""
        path = self._path_of(claim)
        body = _encode(self._versions.sent(_CLAIMS, patch))
        path = f"{path}/{subresource}" if subresource else path
        patched = await self._transport.request("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)
        return self._decoded(patched)

    async def delete(self, claim: ResourceClaim) -> None:
        """DELETE a claim. A claim that is deleted or has another uid is not an error."""
        await _delete(self._transport, self._path_of(claim), claim.metadata.uid)

    def _decoded(self, body: bytes) -> ResourceClaim:
        return decode(ResourceClaim, self._versions.received(_CLAIMS, body))

    def _path(self, namespace: str) -> str:
        return f"{self._versions.addressed(_CLAIMS).prefix}/namespaces/{namespace}/{_CLAIMS.plural}"

    def _path_of(self, claim: ResourceClaim) -> str:
        return f"{self._path(claim.metadata.namespace)}/{claim.metadata.name}"

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """PATCH ``status.extendedResourceClaimStatus`` of the pod."""
        body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": msgspec.to_builtins(status)}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._transport.request("PATCH", path, _encode(body), content_type=STRATEGIC_MERGE_PATCH)


async def merge_patch(
    transport: Transport,
    resource: Resource,
    obj: ObjectReference,
    changes: Mapping[str, Any],
    *,
    subresource: str = "",
) -> str:
    """PATCH an object, or its ``subresource``, once, and return its new resourceVersion.

    The uid and the resourceVersion of ``obj`` are preconditions. Raises APIError (409 if the object has changed) and
    Unreachable.
    """
    metadata = {**changes.get("metadata", {}), "uid": obj.uid, "resourceVersion": obj.resource_version}
    body = msgspec.json.encode({**changes, "metadata": {name: value for name, value in metadata.items() if value}})
    namespace = f"/namespaces/{obj.namespace}" if resource.namespaced and obj.namespace else ""
    path = f"{resource.prefix}{namespace}/{resource.plural}/{obj.name}"
    if subresource:
        path = f"{path}/{subresource}"
    patched = await transport.request("PATCH", path, body, content_type=MERGE_PATCH)
    return decode(_MetadataOnly, patched).metadata.resource_version


class _MetadataOnly(APIObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_PAGE_SIZE, _NAMES_PAGE_SIZE = 1000, 500
_GONE = 410


class _ListMeta(msgspec.Struct, rename={"next": "continue", "version": "resourceVersion"}):
    next: str = ""
    version: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _ObjectMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _ObjectMeta


class _Names(msgspec.Struct):
    items: list[_Object] | None = None


_LIST = msgspec.json.Decoder(_List)
_NAMES = msgspec.json.Decoder(_Names)


async def list_names(transport: Transport, resource: Resource) -> dict[str, str]:
    """The names of all objects, as ``namespace/name`` if they have a namespace, by uid.

    Raises APIError, also for a continue token that has expired, and Unreachable.
    """
    names: dict[str, str] = {}
    path = f"{resource.prefix}/{resource.plural}"
    async for page, _ in _pages(transport, path, resource.field_selector, _NAMES_PAGE_SIZE):
        try:
            items = decode_readable(_NAMES, page).items or ()
        except UNDECODABLE as error:
            raise Unreachable(transport.server, f"malformed list at {path}: {error}") from None
        for meta in (item.metadata for item in items):
            names[meta.uid] = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    return names


async def list_pages(transport: Transport, path: str, field_selector: str = "") -> tuple[list[bytes], str]:
    """The pages of a list as readable JSON, and the resourceVersion of all of them. Raises APIError and Unreachable.

    If the server compacts that version away before the last page, the list is read again in one piece.
    """
    for limit in (_PAGE_SIZE, 0):
        pages, version = [], ""
        try:
            async for page, page_version in _pages(transport, path, field_selector, limit):
                pages.append(readable_json(page))
                version = version or page_version
        except APIError as error:
            if error.code != _GONE or not limit:
                raise
        else:
            break
    return pages, version


async def _pages(transport: Transport, path: str, field_selector: str, limit: int) -> AsyncIterator[tuple[bytes, str]]:
    token = ""
    while True:
        query = {"limit": limit, "continue": token, "fieldSelector": field_selector}
        encoded = urlencode({key: value for key, value in query.items() if value})
        page = await transport.request("GET", f"{path}?{encoded}" if encoded else path)
        try:
            metadata = decode_readable(_LIST, page).metadata
        except UNDECODABLE as error:
            raise Unreachable(transport.server, f"malformed list at {path}: {error}") from None
        yield page, metadata.version
        token = metadata.next
        if not token:
            return
