"""The clusters that a workload is run on: the interface of its operations to them, and one behind an API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol
from urllib.parse import quote

import msgspec

from kubestow.api.meta import APIObject
from kubestow.client.object_requests import list_pages
from kubestow.client.reflector import Reflector
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError
from kubestow.scheduling.interfaces import Clock, Resource, Subscriber
from kubestow_lab.scheduler_perf.object_templates import Object

Creation = Callable[[], Awaitable[Object]]
"""Creates one object and returns it as stored."""


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """Identifies an object; ``namespace`` is empty for kinds without namespaces."""

    api_version: str
    kind: str
    namespace: str
    name: str


class ClusterUnderTest(Protocol):
    """A cluster under test. Failures are raised as APIError or Unreachable."""

    async def prepare(self, obj: Object, namespace: str = "") -> Creation:
        """Everything about the creation of an object that can be done before time is measured.

        ``namespace`` is used for kinds that have namespaces.
        """

    async def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Whether the objects of a kind are in namespaces. Raises InputError for a kind that is not served."""

    async def replace(self, obj: Object, namespace: str = "", subresource: str = "") -> None:
        """Replace an existing object, or one subresource of it."""

    async def delete(self, reference: ObjectIdentity, *, immediately: bool = False) -> None:
        """Delete an object, without a grace period if ``immediately``. One that does not exist is no error."""

    async def delete_pods(self, namespace: str, labels: Mapping[str, str], *, immediately: bool = False) -> None:
        """Delete the pods of a namespace that have all these labels."""

    async def list_objects(self, api_version: str, kind: str, namespace: str = "") -> list[Object]:
        """The objects of a kind, of one namespace or of all."""

    async def watch_pods(self, subscriber: Subscriber) -> None:
        """Deliver all pods and their changes until cancelled. A delivered pod has metadata, spec and status."""


def reference_to(obj: Object, namespace: str = "") -> ObjectIdentity:
    """The reference to an object with a name."""
    name = obj["metadata"]["name"]
    return ObjectIdentity(obj.get("apiVersion", "v1"), obj["kind"], namespace, name)


_FORBIDDEN, _NOT_FOUND = 403, 404
#: How long to wait for the service account of a new namespace, and between two tries, in seconds.
_SERVICE_ACCOUNT_TIMEOUT, _SERVICE_ACCOUNT_INTERVAL = 10.0, 0.1
_DELETE = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1"})
_DELETE_IMMEDIATELY = msgspec.json.encode(
    {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
)


class _Metadata(APIObject, frozen=True):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class _Condition(APIObject, frozen=True):
    type: str = ""
    message: str = ""


class _Spec(APIObject, frozen=True):
    node_name: str = ""


class _Status(APIObject, frozen=True):
    conditions: list[_Condition] = []


class _ObservedPod(APIObject, frozen=True):
    """The fields of a pod that tell how far its scheduling is: decoding a whole pod would cost the driver more."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_PODS = Resource("/api/v1", "pods", "Pod", _ObservedPod)


class APIServerCluster:
    """Implements :class:`kubestow_lab.scheduler_perf.clusters.ClusterUnderTest` with requests to an API server."""

    def __init__(self, transport: Transport, *, clock: Clock, random: Random) -> None:
        self._transport, self._clock, self._random = transport, clock, random
        #: (apiVersion, kind) -> plural and whether its objects are in namespaces.
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}
        self._discovered: set[str] = set()

    async def prepare(self, obj: Object, namespace: str = "") -> Creation:
        path = await self._collection(obj.get("apiVersion", "v1"), obj.get("kind", ""), namespace)
        body = msgspec.json.encode(obj)

        async def create() -> Object:
            created: Object = msgspec.json.decode(await self._post(f"{path}?fieldValidation=Strict", body))
            return created

        return create

    async def _post(self, path: str, body: bytes) -> bytes:
        """Create an object.

        Pods are forbidden in a new namespace until a controller has created its service account.
        """
        deadline = self._clock.monotonic() + _SERVICE_ACCOUNT_TIMEOUT
        while True:
            try:
                return await self._transport.request("POST", path, body)
            except APIError as error:
                waits = error.code == _FORBIDDEN and "serviceaccount" in str(error)
                if not waits or self._clock.monotonic() > deadline:
                    raise
            await self._clock.sleep(_SERVICE_ACCOUNT_INTERVAL)

    async def is_namespaced(self, api_version: str, kind: str) -> bool:
        return (await self._resource(api_version, kind))[1]

    async def replace(self, obj: Object, namespace: str = "", subresource: str = "") -> None:
        path = await self._collection(obj.get("apiVersion", "v1"), obj.get("kind", ""), namespace)
        name = quote(obj["metadata"]["name"], safe="") + (f"/{subresource}" if subresource else "")
        await self._transport.request("PUT", f"{path}/{name}?fieldValidation=Strict", msgspec.json.encode(obj))

    async def delete(self, reference: ObjectIdentity, *, immediately: bool = False) -> None:
        path = await self._collection(reference.api_version, reference.kind, reference.namespace)
        options = _DELETE_IMMEDIATELY if immediately else _DELETE
        try:
            await self._transport.request("DELETE", f"{path}/{quote(reference.name, safe='')}", options)
        except APIError as error:
            if error.code != _NOT_FOUND:
                raise

    async def delete_pods(self, namespace: str, labels: Mapping[str, str], *, immediately: bool = False) -> None:
        selector = quote(",".join(f"{key}={value}" for key, value in labels.items()), safe="")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods" + (f"?labelSelector={selector}" if labels else "")
        await self._transport.request("DELETE", path, _DELETE_IMMEDIATELY if immediately else _DELETE)

    async def list_objects(self, api_version: str, kind: str, namespace: str = "") -> list[Object]:
        pages, _ = await list_pages(self._transport, await self._collection(api_version, kind, namespace))
        items = (item for page in pages for item in msgspec.json.decode(page).get("items") or ())
        # The items of a list do not have their apiVersion and kind.
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    async def watch_pods(self, subscriber: Subscriber) -> None:
        await Reflector(self._transport, _PODS, subscriber, clock=self._clock, random=self._random).run()

    async def _collection(self, api_version: str, kind: str, namespace: str) -> str:
        """The path of the collection of a kind; without a namespace, of all namespaces."""
        plural, namespaced = await self._resource(api_version, kind)
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespaced and namespace else ""
        return f"{_prefix(api_version)}{scope}/{plural}"

    async def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        if api_version not in self._discovered:
            await self._discover(api_version)
        found = self._resources.get((api_version, kind))
        if found is None:
            raise InputError(self._transport.server, f"does not serve the kind {kind!r} of {api_version}")
        return found

    async def _discover(self, api_version: str) -> None:
        try:
            body = await self._transport.request("GET", _prefix(api_version))
        except APIError as error:
            if error.code != _NOT_FOUND:
                raise
            return
        for resource in msgspec.json.decode(body)["resources"]:
            if "/" not in resource["name"]:
                self._resources[api_version, resource["kind"]] = (resource["name"], resource["namespaced"])
        self._discovered.add(api_version)


def _prefix(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
