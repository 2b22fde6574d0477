"""A simulated scheduler with devices in its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubestow.api.core import Node, Pod
from kubestow.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResourcesWithoutScore
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import PluginHarness, node
from kubestow.testing.devices import DRIVER, claim, device_class, slice_of

DeviceObject = ResourceSlice | DeviceClass | DeviceTaintRule | ResourceClaim
T = TypeVar("T")


class DeviceHarness(PluginHarness):
    """A simulated scheduler with devices, claims and the class ``gpu``, which selects all devices."""

    def __init__(self, *objects: DeviceObject | Node, **fields: Any) -> None:
        nodes = [obj for obj in objects if isinstance(obj, Node)]
        super().__init__(nodes, **fields)
        self.put(device_class(), *(obj for obj in objects if not isinstance(obj, Node)))

    def put(self, *objects: DeviceObject | Node) -> None:
        """Add or update objects."""
        for obj in objects:
            self.cluster.catalog(type(obj)).put(obj)

    @property
    def plugin(self) -> DynamicResourcesWithoutScore:
        """The DynamicResources plugin of the default profile."""
        plugins = self.profiles["default-scheduler"].plugins
        (found,) = (plugin for plugin in plugins if isinstance(plugin, DynamicResourcesWithoutScore))
        return found

    def claim(self, name: str = "c") -> ResourceClaim:
        """A claim in the ledger."""
        found = self.cluster.resource_claims.get("default", name)
        assert found is not None
        return found

    def devices(self, name: str = "c") -> list[str]:
        """The allocated devices of a claim, as request=device."""
        allocation = self.claim(name).status.allocation
        return [] if allocation is None else [f"{r.request}={r.device}" for r in allocation.devices.results]

    def place(self, incoming: Pod) -> Decision:
        """Schedule a pod; if a node is found, run Reserve."""
        decision = self.schedule(incoming)
        if decision.node_name is not None:
            assert self.plugin.reserve(decision.state, decision.pod, decision.node_name) is None
        return decision

    def prepare(self, decision: Decision) -> Status:
        """Run PreBind."""
        assert decision.node_name is not None
        work = self.plugin.pre_bind(decision.state, decision.pod, decision.node_name)
        return run_synchronously(work) or SUCCESS

    def run(self, incoming: Pod) -> Decision:
        """Schedule a pod; if a node is found, run Reserve and PreBind."""
        decision = self.place(incoming)
        if decision.node_name is not None:
            status = self.prepare(decision)
            assert status.ok, status
        return decision

    def reason(self, incoming: Pod) -> str:
        """The message of a decision without a node."""
        decision = self.decide(incoming)
        assert decision.node_name is None
        return decision.message


#: A node, and a slice with one device for it.
NODE = node("n")
GPU = slice_of("d0", node="n")


def single_node(*objects: DeviceObject, **fields: Any) -> DeviceHarness:
    """A harness with one node, ``n``."""
    return DeviceHarness(NODE, *objects, **fields)


def condition(kind: str, *, reason: str = "", of: str = "d0") -> dict[str, Any]:
    """A true condition of a device, as a driver reports it."""
    report = {"type": kind, "status": "True", "reason": reason, "message": "see log"}
    return {"driver": DRIVER, "pool": "n", "device": of, "conditions": [report]}


def report(harness: DeviceHarness, *conditions: dict[str, Any]) -> None:
    """The driver reports conditions of the claim ``c``."""
    status = claim("c", status={"devices": list(conditions)}).status.devices
    current = harness.claim()
    harness.put(msgspec.structs.replace(current, status=msgspec.structs.replace(current.status, devices=status)))


def report_while_waiting(harness: DeviceHarness, *conditions: dict[str, Any]) -> None:
    """The driver reports conditions while PreBind waits."""

    async def wait_for(condition: Callable[[], T | None], seconds: float) -> T | None:
        assert condition() is None
        report(harness, *conditions)
        return condition()

    harness.wait_for = wait_for  # type: ignore[method-assign]
