"""A cluster with a kube-scheduler on which scenarios are played, one after another.

The cluster is emptied before each. What the API server rejects is left out, so the scenario that is decided about is
read from it afterwards. There are no kubelets and no controllers: pods on nodes are reported as running here, victims
stay until the cluster is emptied, and a pod whose volumes need a controller gets no decision.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kubestow.client.rest.transport import JSON, MERGE_PATCH, Transport
from kubestow.errors import APIError, KubestowError
from kubestow.rules.minors import Minor
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.interfaces import Resource
from kubestow_lab.conformance.recorded_cases import Case, Object
from kubestow_lab.differential.scenarios import Scenario

#: What the scheduler reads and scenarios may have, in the order of creation.
_RESOURCES = {resource.plural: resource for resource in WATCHED if resource.plural not in ("podgroups",)}
_ORDER = [plural for plural in _RESOURCES if plural != "pods"] + ["pods"]
_KEPT_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
#: Objects of the cluster itself.
_KEPT = {("services", "kubernetes")}
_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: Metadata that the API server sets.
_SYSTEM_METADATA = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_STARTED = "2026-01-01T00:00:00Z"
#: Seconds between two looks at a pod, until a decision counts as missing, and in which victims are evicted.
_POLL, _NO_DECISION, _EVICTION = 0.05, 8.0, 0.5


class ReferenceCluster:
    """Plays scenarios over ``transport``; ``minor`` is the version of its kube-scheduler."""

    def __init__(self, transport: Transport, minor: Minor) -> None:
        self._transport, self._minor = transport, minor
        self._served: list[Resource] = []
        #: The priority classes that exist; they stay.
        self._classes: set[str] = set()
        self._creating_class = asyncio.Lock()

    async def prepare(self) -> None:
        """Find out what the cluster serves, and delete what it has. Raises KubestowError."""
        for plural in _ORDER:
            with suppress(APIError):
                await self._list(_RESOURCES[plural])
                self._served.append(_RESOURCES[plural])
        await self.empty()

    async def play(self, scenario: Scenario, *, settle_seconds: float) -> Case | None:
        """The scenario as it was decided about, with the decision; None if there was none.

        The scheduler has ``settle_seconds`` to learn of the objects before the pod is created.
        """
        await self.empty()
        for resource in self._served:
            objects = scenario.cluster.get(resource.plural, ())
            await asyncio.gather(*(self._create(resource, obj) for obj in objects))
        pods = _RESOURCES["pods"]
        namespace = scenario.pod["metadata"]["namespace"]
        if namespace not in _KEPT_NAMESPACES | {
            obj["metadata"]["name"] for obj in scenario.cluster.get("namespaces", ())
        }:
            await self._create(_RESOURCES["namespaces"], {"metadata": {"name": namespace}})
        await asyncio.sleep(settle_seconds)
        cluster = await self._state()
        pod = await self._create(pods, scenario.pod)
        if pod is None:
            return None
        observed = await self._decision(pod)
        if observed is None:
            return None
        return Case(
            name=f"fuzzed/{scenario.origin}",
            area="observed",
            config=None,
            feature_gates={},
            minor=self._minor,
            cluster=cluster,
            pods=[_without_managed_fields(pod)],
            expect=[{"observed": observed}],
            config_error=None,
        )

    async def empty(self) -> None:
        """Delete everything that scenarios create, and wait until it is gone."""
        while left := [
            self._delete(resource, obj)
            for resource in reversed(self._served)
            for obj in await self._list(resource)
            if not _is_kept(resource, obj)
        ]:
            await asyncio.gather(*left)

    # -- decisions -----------------------------------------------------------------------------------------------------

    async def _decision(self, pod: Object) -> Object | None:
        """What the scheduler decides about a pod first, None if nothing in time."""
        path = _path(_RESOURCES["pods"], pod)
        loop = asyncio.get_running_loop()
        end = loop.time() + _NO_DECISION
        while loop.time() < end:
            found = await self._request("GET", path)
            if node := found["spec"].get("nodeName"):
                return {"node": node}
            condition = _scheduled_condition(found)
            if condition is not None and condition.get("reason") == "Unschedulable":
                return await self._rejection(path, condition)
            if condition is not None and condition.get("reason") not in (None, "SchedulingGated"):
                return None
            await asyncio.sleep(_POLL)
        return None

    async def _rejection(self, path: str, condition: Object) -> Object | None:
        """A rejection, with the nomination and the victims once no more are evicted."""
        await asyncio.sleep(_EVICTION)
        pod = await self._request("GET", path)
        nominated = (pod.get("status") or {}).get("nominatedNodeName", "")
        victims = await self._victims()
        while nominated and victims != (victims := await self._settled_victims()):
            pass
        if nominated:
            return {"nominatedNodeName": nominated, "victims": victims}
        return {"message": condition.get("message", "")}

    async def _settled_victims(self) -> list[str]:
        await asyncio.sleep(_EVICTION)
        return await self._victims()

    async def _victims(self) -> list[str]:
        return sorted(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in await self._list(_RESOURCES["pods"])
            if _is_victim(pod)
        )

    # -- objects -------------------------------------------------------------------------------------------------------

    async def _state(self) -> dict[str, list[Object]]:
        state = {}
        for resource in self._served:
            objects = await self._list(resource)
            if kept := [_without_managed_fields(obj) for obj in objects if not _is_cluster_own(resource, obj)]:
                state[resource.plural] = kept
        return state

    async def _list(self, resource: Resource) -> list[Object]:
        listed = await self._request("GET", f"{resource.prefix}/{resource.plural}")
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in listed["items"]]

    async def _create(self, resource: Resource, obj: Object) -> Object | None:
        """Create an object, with its status if that is valid; None if the API server rejects it."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _SYSTEM_METADATA}
        metadata.pop("ownerReferences", None)
        new = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        new.pop("status", None)
        if resource.plural == "pods":
            new["spec"] = await self._with_priority_class(new["spec"])
        if resource.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
            collection = f"{resource.prefix}/namespaces/{metadata['namespace']}/{resource.plural}"
        else:
            metadata.pop("namespace", None)
            collection = f"{resource.prefix}/{resource.plural}"
        try:
            created = await self._request("POST", collection, new)
        except APIError:
            return None
        with suppress(APIError):
            if resource.plural == "nodes":
                # Admission taints a new node until its kubelet reports.
                taints = {"spec": {"taints": (obj.get("spec") or {}).get("taints")}}
                created = await self._request("PATCH", _path(resource, created), taints, MERGE_PATCH)
            status = dict(obj.get("status") or {})
            if resource.plural == "pods":
                status.pop("qosClass", None)
                if created["spec"].get("nodeName"):
                    status = {"phase": "Running", "startTime": _STARTED, **status}
            if status:
                path = f"{_path(resource, created)}/status"
                created = await self._request("PATCH", path, {"status": status}, MERGE_PATCH)
        return {"apiVersion": resource.api_version, "kind": resource.kind, **created}

    async def _with_priority_class(self, spec: Object) -> Object:
        """A pod spec with a class for its priority, without which admission rejects it."""
        policy = spec.get("preemptionPolicy", "PreemptLowerPriority")
        value = spec.get("priority", 0)
        name = f"fuzzed{value}-{policy.lower()}".replace("-", "m", int(value < 0))
        async with self._creating_class:
            if name not in self._classes:
                with suppress(APIError):
                    manifest = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
                    await self._request("POST", _PRIORITY_CLASSES, manifest)
                self._classes.add(name)
        return {**spec, "priorityClassName": name, "priority": value, "preemptionPolicy": policy}

    async def _delete(self, resource: Resource, obj: Object) -> None:
        with suppress(APIError):
            if obj["metadata"].get("finalizers"):
                await self._request("PATCH", _path(resource, obj), {"metadata": {"finalizers": None}}, MERGE_PATCH)
            if resource.plural == "namespaces" and "deletionTimestamp" in obj["metadata"]:
                await self._request("PUT", f"{_path(resource, obj)}/finalize", {**obj, "spec": {}})
                return
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            await self._request("DELETE", _path(resource, obj), options)

    async def _request(self, method: str, path: str, body: Object | None = None, content_type: str = JSON) -> Any:
        content = None if body is None else json.dumps(body).encode()
        return json.loads(await self._transport.request(method, path, content, content_type=content_type))


def _path(resource: Resource, obj: Object) -> str:
    metadata = obj["metadata"]
    namespace = f"namespaces/{metadata['namespace']}/" if resource.namespaced else ""
    return f"{resource.prefix}/{namespace}{resource.plural}/{metadata['name']}"


def _is_kept(resource: Resource, obj: Object) -> bool:
    name = obj["metadata"]["name"]
    return (resource.plural, name) in _KEPT or (resource.plural == "namespaces" and name in _KEPT_NAMESPACES)


def _is_cluster_own(resource: Resource, obj: Object) -> bool:
    return (resource.plural, obj["metadata"]["name"]) in _KEPT


def _without_managed_fields(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _scheduled_condition(pod: Object) -> Object | None:
    conditions: Sequence[Object] = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), None)


def _is_victim(pod: Object) -> bool:
    conditions: Sequence[Object] = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "DisruptionTarget" and one.get("reason") == "PreemptionByScheduler" for one in conditions)


async def server_minor(transport: Transport) -> Minor:
    """The minor version of an API server. Raises KubestowError."""
    answered = json.loads(await transport.request("GET", "/version"))
    if "gitVersion" not in answered:
        raise KubestowError(f"{transport.server} does not name its version")
    return Minor.parse(answered["gitVersion"].partition("-")[0].partition("+")[0], subject=transport.server)
