"""What a scheduler asks for of single pods: it binds them, patches their status, deletes victims, and reads one again
when it cannot know whether a binding was made. Each call is one request; when and how often one is made is said by
:mod:`kubestow.scheduling.writes.dispatcher`.

Bodies are kube-scheduler's, with one thing added: every write carries the pod's uid, so that it never hits another pod
that has meanwhile taken the name (for a binding the API server checks it as a precondition, in a patch as an immutable
field).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubestow.api.core import Pod, PodCondition
from kubestow.api.meta import APIObject, ObjectMeta, decode
from kubestow.client.rest.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Transport
from kubestow.errors import APIError, InvalidObject, Unreachable
from kubestow.scheduling.ports import ObjectReference, PodStatusPatch, Resource

__all__ = ["PodClient", "patch_object"]

_encode = msgspec.json.Encoder().encode


class PodClient:
    """Writes to pods, one by one. Failures are raised as APIError or Unreachable."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """POST the pod's binding, once: whether a lost answer meant success only :meth:`read_pod` can tell."""
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node_name},
        }
        await self._transport.request("POST", f"{_path(pod)}/binding", _encode(binding))

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """GET the pod from the server itself (no version is asked for, so no cache answers); None when it is gone."""
        try:
            found = decode(Pod, await self._transport.request("GET", _path(pod)))
        except APIError as error:
            if error.code != 404:
                raise
            return None
        except InvalidObject as error:
            raise Unreachable(self._transport.server, f"sent a pod that is none: {error}") from None
        return found if found.metadata.uid == pod.uid else None

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """PATCH the pod's status."""
        body = _encode({"metadata": {"uid": pod.uid}, "status": _status(patch)})
        await self._transport.request("PATCH", f"{_path(pod)}/status", body, content_type=STRATEGIC_MERGE_PATCH)

    async def delete_pod(self, pod: ObjectReference) -> None:
        """DELETE the pod with its default grace period. One that is gone, or replaced by a namesake, is no error."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": pod.uid}}
        try:
            await self._transport.request("DELETE", _path(pod), _encode(options))
        except APIError as error:
            if error.code not in (404, 409):
                raise


async def patch_object(
    transport: Transport,
    resource: Resource,
    obj: ObjectReference,
    changes: Mapping[str, Any],
    *,
    subresource: str = "",
) -> str:
    """Merge-PATCH an object (or its ``status``) once, if it is still the one that was read.

    Its new resourceVersion is returned.
    """
    metadata = {**changes.get("metadata", {}), "uid": obj.uid, "resourceVersion": obj.resource_version}
    body = _encode({**changes, "metadata": {name: value for name, value in metadata.items() if value}})
    namespace = f"/namespaces/{obj.namespace}" if resource.namespaced and obj.namespace else ""
    path = f"{resource.prefix}{namespace}/{resource.plural}/{obj.name}"
    if subresource:
        path = f"{path}/{subresource}"
    answer = await transport.request("PATCH", path, body, content_type=MERGE_PATCH)
    return decode(_Versioned, answer).metadata.resource_version


class _Versioned(APIObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def _path(pod: ObjectReference) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _status(patch: PodStatusPatch) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if patch.conditions:
        status["conditions"] = [_condition(condition) for condition in patch.conditions]
    if patch.nominated_node_name is not None:
        status["nominatedNodeName"] = patch.nominated_node_name or None  # null takes the field away
    return status


def _condition(condition: PodCondition) -> dict[str, Any]:
    """A condition in full: a field left out would keep the old condition's value."""
    whole = {
        "lastProbeTime": None,
        "lastTransitionTime": condition.last_transition_time,
        "message": condition.message,
        "observedGeneration": condition.observed_generation or None,
        "reason": condition.reason,
        "status": condition.status,
        "type": condition.type,
    }
    return {key: value for key, value in whole.items() if value is not None or key == "lastProbeTime"}
