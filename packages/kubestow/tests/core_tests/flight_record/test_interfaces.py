"""The proxy: each member of each interface, as records have had it since their first format."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kubestow.api.core import PodCondition
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.flight_record.interfaces import Method, create_proxy
from kubestow.framework.handle import ResourceClaimWriter
from kubestow.framework.interface import Victims
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.extenders.stages import Extender
from kubestow.scheduling.interfaces import Clock, ClusterAPI, ObjectReference, PodStatusPatch
from kubestow.testing import PluginHarness, node, pod

POD = ObjectReference("Pod", "default", "web", "uid-web")
NODE = ObjectReference("Node", "", "node", "uid-node")
CLAIM = convert(ResourceClaim, {"metadata": {"namespace": "d", "name": "c", "uid": "u", "resourceVersion": "7"}})
INFO = PluginHarness([node("node")]).info(pod("web"))
CONDITION = PodCondition(type="PodScheduled", status="False")
OF_INFO = [INFO.key, INFO.uid]


@pytest.mark.parametrize(
    ("interface", "name", "arguments", "keywords", "recorded"),
    [
        (
            ClusterAPI,
            "subscribe",
            ([NODES, PODS], None),
            {},
            ("subscribe", [("/api/v1", "nodes", "Node"), ("/api/v1", "pods", "Pod")]),
        ),
        (ClusterAPI, "bind", (POD, "node"), {}, ("bind", ["default/web", "uid-web", "node"])),
        (ClusterAPI, "read_pod", (POD,), {}, ("read_pod", ["default/web", "uid-web"])),
        (
            ClusterAPI,
            "patch_pod_status",
            (POD, PodStatusPatch((CONDITION,), "node")),
            {},
            ("patch_pod_status", ["default/web", "uid-web", [CONDITION], "node"]),
        ),
        (ClusterAPI, "patch", (NODES, NODE, {"a": 1}), {}, ("patch", ["node", "uid-node", {"a": 1}, ""])),
        (
            ClusterAPI,
            "patch",
            (PODS, POD, {"a": 1}),
            {"subresource": "status"},
            ("patch", ["default/web", "uid-web", {"a": 1}, "status"]),
        ),
        (ClusterAPI, "request", ("POST", "/path", {"password": "x"}), {}, ("request", ["POST", "/path"])),
        (ClusterAPI, "delete_pod", (POD,), {}, ("delete_pod", ["default/web", "uid-web"])),
        (ResourceClaimWriter, "read", ("d", "c"), {}, ("read_claim", ["d", "c"])),
        (ResourceClaimWriter, "create", ("d", {"spec": {}}), {}, ("create_claim", ["d", {"spec": {}}])),
        (ResourceClaimWriter, "patch", (CLAIM, {"a": 1}), {}, ("patch_claim", ["d/c", "u", "7", {"a": 1}, ""])),
        (ResourceClaimWriter, "delete", (CLAIM,), {}, ("delete_claim", ["d/c", "u", "7"])),
        (ResourceClaimWriter, "report_extended", (INFO, "status"), {}, ("report_extended_claim", [*OF_INFO, "status"])),
        (Extender, "filter", (INFO, ("node",)), {}, ("filter", [*OF_INFO, ["node"]])),
        (Extender, "prioritize", (INFO, ("node",)), {}, ("prioritize", [*OF_INFO, ["node"]])),
        (
            Extender,
            "preempt",
            (INFO, {"node": Victims((INFO,), 0)}),
            {},
            ("preempt", [*OF_INFO, {"node": [INFO.uid]}]),
        ),
        (Extender, "bind", (INFO, "node"), {}, ("extender_bind", [*OF_INFO, "node"])),
        (Leadership, "acquire", (), {}, ("acquire_lease", [])),
        (Leadership, "hold", (), {}, ("hold_lease", [])),
        (Leadership, "release", (), {}, ("release_lease", [])),
    ],
)
def test_a_call_is_recorded_under_the_same_name_and_arguments(
    interface: type[Any], name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], recorded: tuple[str, Any]
) -> None:
    method = Method.of(interface, name)
    assert (method.name, method.describe(arguments, keywords)) == recorded


class Uses:
    """A boundary that notes its uses."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, Any]] = []

    async def call(self, method: Method, implementation: Any, arguments: tuple[Any, ...], keywords: Any) -> str:
        self.noted.append(("call", method.name))
        return "value"

    def notify(self, implementation: Any, arguments: tuple[Any, ...]) -> None:
        self.noted.append(("notify", arguments))

    def read(self, kind: type[Any], implementation: Any) -> Any:
        self.noted.append(("read", kind))
        return implementation()


def test_a_member_is_a_call_a_notification_or_a_reading_as_its_interface_says() -> None:
    uses, now = Uses(), datetime(2026, 1, 1, tzinfo=UTC)
    api = create_proxy(ClusterAPI, uses)
    clock = create_proxy(Clock, uses, SimpleNamespace(now=lambda: now, monotonic=lambda: 1.5, sleep=asyncio.sleep))
    leadership = create_proxy(Leadership, uses, SimpleNamespace(is_leader=True, holds_lease=True, overdue=0.0))
    assert asyncio.run(api.resource_claims.read("default", "claim")) == "value"
    api.record("event")
    assert (clock.now(), clock.monotonic(), clock.sleep) == (now, 1.5, asyncio.sleep)
    assert (leadership.is_leader, leadership.overdue) == (True, 0.0)
    assert uses.noted == [
        ("call", "read_claim"),
        ("notify", ("event",)),
        ("read", datetime),
        ("read", float),
        ("read", bool),
        ("read", float),
    ]
