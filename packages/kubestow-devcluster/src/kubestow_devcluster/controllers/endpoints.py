"""The endpoints controllers: Endpoints and EndpointSlices of the services with a selector.

Every pod that the selector matches, and that has an address, is an endpoint until it has finished. Endpoints have ready
pods and others apart; EndpointSlices have conditions, and also the pods that terminate. Nothing listens on an address,
so both are written for those who read them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.component_base.stored_objects import new_controller_ref
from kubestow_devcluster.controllers.controller import LONGEST_THROTTLE, Controller, ControllerContext, ObjectChange
from kubestow_devcluster.controllers.pod_index import PodView

_ENDPOINTS, _SLICES = "endpoints", "endpointslices.discovery.k8s.io"
_SERVICE_NAME = "kubernetes.io/service-name"
_SLICE_MANAGER = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
_ENDPOINTS_MANAGER = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
_HEADLESS = "service.kubernetes.io/headless"
_ZONE = "topology.kubernetes.io/zone"
#: The most endpoints of a slice.
_MAX_ENDPOINTS = 100


class _Port(NamedTuple):
    """A port of a service as a pod has it; ``name`` and ``app_protocol`` are empty where the service has none."""

    name: str
    number: int
    protocol: str
    app_protocol: str

    def as_object(self) -> dict[str, Any]:
        """The fields that both kinds have, the name apart."""
        application = {"appProtocol": self.app_protocol} if self.app_protocol else {}
        return {"port": self.number, "protocol": self.protocol, **application}


_Ports = tuple[_Port, ...]


class EndpointsController(Controller):
    """Writes the Endpoints and the EndpointSlices of services."""

    resource = "services"
    watched = frozenset({"pods"})

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._endpoints_kind = context.registry.scheme[_ENDPOINTS]
        self._slice_kind = context.registry.scheme[_SLICES]
        #: The selectors of the services that have one, by namespace and key.
        self._selectors: dict[str, dict[str, Mapping[str, str]]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        stored = change.event.object
        if change.resource == self.resource:
            selectors = self._selectors.setdefault(stored.namespace, {})
            selectors.pop(change.key, None)
            if not change.is_deletion and (selector := _selector(self.kind.decode(stored))):
                selectors[change.key] = selector
            self.enqueue(change.key)
            return
        before = change.event.previous
        for key, selector in self._selectors.get(stored.namespace, {}).items():
            if _matches(selector, stored.labels) or (before is not None and _matches(selector, before.labels)):
                self.enqueue(key)

    def reconcile(self, key: str) -> None:
        service = self.get(key)
        if service is None:
            if (left := self.get(key, self._endpoints_kind)) is not None and _is_managed(left):
                namespace, _, name = key.partition("/")
                self.registry.delete(self._endpoints_kind, namespace, name, DeleteOptions(uid=left["metadata"]["uid"]))
            return  # the garbage collector deletes the slices
        selector = _selector(service)
        if not selector or "deletionTimestamp" in service["metadata"]:
            return
        found = self.pods.in_namespace(service["metadata"]["namespace"])
        pods = sorted(
            (pod for pod in found if pod.pod_ip and not pod.is_finished and _matches(selector, pod.metadata.labels)),
            key=lambda pod: pod.name,
        )
        self.throttle(key, len(pods), longest=LONGEST_THROTTLE)
        by_ports: dict[_Ports, list[PodView]] = {}
        for pod in pods:
            by_ports.setdefault(self._ports(service, pod), []).append(pod)
        self._write_endpoints(service, by_ports)
        self._write_slices(service, by_ports)

    def _ports(self, service: Object, pod: PodView) -> _Ports:
        """The ports of a service with the numbers that they have in a pod; those that it does not name are left out."""
        ports = []
        for port in service["spec"].get("ports") or ():
            target, protocol = port.get("targetPort") or port["port"], port.get("protocol", "TCP")
            number = target if isinstance(target, int) else self._named_port(pod, target, protocol)
            if number is not None:
                ports.append(_Port(port.get("name", ""), number, protocol, port.get("appProtocol", "")))
        return tuple(ports)

    def _named_port(self, pod: PodView, name: str, protocol: str) -> int | None:
        decoded = self.get(pod.key, self.pod_kind)
        containers: Sequence[Object] = decoded["spec"]["containers"] if decoded is not None else ()
        ports = (port for container in containers for port in container.get("ports") or ())
        return next(
            (
                port["containerPort"]
                for port in ports
                if port.get("name") == name and port.get("protocol", "TCP") == protocol
            ),
            None,
        )

    # -- Endpoints -----------------------------------------------------------------------------------------------

    def _write_endpoints(self, service: Object, by_ports: Mapping[_Ports, Sequence[PodView]]) -> None:
        metadata = service["metadata"]
        labels = _labels(service) | _ENDPOINTS_MANAGER
        desired: Object = {"metadata": {"name": metadata["name"], "labels": labels}}
        if subsets := [subset for each in by_ports.items() if (subset := _subset(service, *each))]:
            desired["subsets"] = subsets
        current = self.get(f"{metadata['namespace']}/{metadata['name']}", self._endpoints_kind)
        if current is None:
            new = self._endpoints_kind.struct.read(desired, [])
            self.registry.create(self._endpoints_kind, metadata["namespace"], new)
        elif (current["metadata"].get("labels"), current.get("subsets") or []) != (labels, subsets):

            def updated(old: Object) -> Object:
                return {**old, "metadata": {**old["metadata"], "labels": labels}, "subsets": subsets}

            self.registry.update(self._endpoints_kind, metadata["namespace"], metadata["name"], updated)

    # -- EndpointSlices ------------------------------------------------------------------------------------------

    def _write_slices(self, service: Object, by_ports: Mapping[_Ports, Sequence[PodView]]) -> None:
        metadata = service["metadata"]
        namespace = metadata["namespace"]
        labels = _labels(service) | _SLICE_MANAGER | {_SERVICE_NAME: metadata["name"]}
        desired = list(self._slices(service, by_ports))
        owned = self._slices_of(service)
        for current, content in itertools.zip_longest(owned, desired):
            if current is None:
                owner = new_controller_ref(self.kind, service)
                identity = {"generateName": f"{metadata['name']}-", "labels": labels, "ownerReferences": [owner]}
                new = {"metadata": identity, "addressType": "IPv4", **content}
                self.registry.create(self._slice_kind, namespace, self._slice_kind.struct.read(new, []))
            elif content is None:
                options = DeleteOptions(uid=current["metadata"]["uid"])
                self.registry.delete(self._slice_kind, namespace, current["metadata"]["name"], options)
            elif current["metadata"].get("labels") != labels or any(
                current.get(key) != content[key] for key in content
            ):

                def updated(old: Object, content: Object = content) -> Object:
                    return {**old, "metadata": {**old["metadata"], "labels": labels}, **content}

                self.registry.update(self._slice_kind, namespace, current["metadata"]["name"], updated)

    def _slices(self, service: Object, by_ports: Mapping[_Ports, Sequence[PodView]]) -> Iterator[Object]:
        """The contents of the slices: at least one, which is empty without pods."""
        for ports, pods in by_ports.items() or [((), ())]:
            for start in range(0, max(1, len(pods)), _MAX_ENDPOINTS):
                part = pods[start : start + _MAX_ENDPOINTS]
                yield {
                    "endpoints": [self._endpoint(service, pod) for pod in part],
                    "ports": [{"name": port.name, **port.as_object()} for port in ports],
                }

    def _endpoint(self, service: Object, pod: PodView) -> Object:
        publishes = service["spec"].get("publishNotReadyAddresses", False)
        conditions = {
            "ready": publishes or (pod.is_ready and not pod.is_terminating),
            "serving": pod.is_ready,
            "terminating": pod.is_terminating,
        }
        endpoint = {"addresses": [pod.pod_ip], "conditions": conditions, **_reference(pod)}
        node = self.registry.store.collection("nodes").get(pod.spec.node_name)
        if node is not None and (zone := node.labels.get(_ZONE)):
            endpoint["zone"] = zone
        return endpoint

    def _slices_of(self, service: Object) -> list[Object]:
        metadata = service["metadata"]
        labels = {_SERVICE_NAME: metadata["name"], **_SLICE_MANAGER}
        stored = self.registry.store.collection(self._slice_kind.storage).snapshot(f"{metadata['namespace']}/")
        return [self._slice_kind.decode(each) for each in stored if _matches(labels, each.labels)]


def _selector(service: Object) -> Mapping[str, str]:
    """The selector of a service; empty without one, and for an alias of another name."""
    spec = service["spec"]
    return {} if spec.get("type") == "ExternalName" else spec.get("selector") or {}


def _matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def _labels(service: Object) -> dict[str, str]:
    """The labels of a service, which its Endpoints and slices have as well."""
    labels = dict(service["metadata"].get("labels") or {})
    return labels | {_HEADLESS: ""} if service["spec"].get("clusterIP") == "None" else labels


def _is_managed(endpoints: Object) -> bool:
    return _matches(_ENDPOINTS_MANAGER, endpoints["metadata"].get("labels") or {})


def _subset(service: Object, ports: _Ports, pods: Sequence[PodView]) -> Object:
    """The subset of Endpoints with these pods, ready ones and others apart; empty if all of them terminate."""
    publishes = service["spec"].get("publishNotReadyAddresses", False)
    addresses: dict[str, list[Object]] = {}
    for pod in pods:
        if publishes or not pod.is_terminating:
            kind = "addresses" if publishes or pod.is_ready else "notReadyAddresses"
            addresses.setdefault(kind, []).append({"ip": pod.pod_ip, **_reference(pod)})
    if not addresses or not ports:
        return addresses
    return {**addresses, "ports": [({"name": port.name} if port.name else {}) | port.as_object() for port in ports]}


def _reference(pod: PodView) -> Object:
    target = {"kind": "Pod", "namespace": pod.metadata.namespace, "name": pod.name, "uid": pod.metadata.uid}
    return {"nodeName": pod.spec.node_name, "targetRef": target}
