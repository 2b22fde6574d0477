"""Requests for single pods: binding, status patch, deletion, and a read to find out whether a binding was made.

Each method is one request; :mod:`kubestow.scheduling.api_calls.dispatcher` decides when and how often. Bodies are
those of kube-scheduler, plus the pod's uid in every write, so that a write never hits another pod of the same name: the
API server checks it as a precondition of a binding and as an immutable field in a patch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.api.core import Pod, PodCondition
from kubestow.api.meta import decode
from kubestow.client.rest.transport import STRATEGIC_MERGE_PATCH, Transport
from kubestow.errors import APIError, InvalidObject, Unreachable
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch

__all__ = ["PodClient"]

_encode = msgspec.json.Encoder().encode


class PodClient:
    """Reads and writes single pods. Methods raise APIError and Unreachable."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """POST the pod's binding, once. After a lost response only :meth:`read_pod` shows whether it was made."""
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node_name},
        }
        await self._transport.request("POST", f"{_path(pod)}/binding", _encode(binding))

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
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": pod.uid}}
        try:
            await self._transport.request("DELETE", _path(pod), _encode(options))
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
