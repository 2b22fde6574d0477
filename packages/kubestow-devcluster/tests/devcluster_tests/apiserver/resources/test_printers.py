"""The printers of built-in kinds: the cells of ``kubectl get``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubestow_devcluster.apiserver.printers import PRINTERS

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
METADATA = {"name": "it", "creationTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("resource", "body", "cells"),
    [
        (
            "ingresses.networking.k8s.io",
            {"spec": {"rules": [{"host": "a.b"}, {"host": "c.d"}], "tls": [{}]}},
            ["it", "<none>", "a.b,c.d", "", "80, 443", "60s"],
        ),
        (
            "endpoints",
            {"subsets": [{"ports": [{"port": 80}], "addresses": [{"ip": f"10.0.0.{n}"} for n in range(5)]}]},
            ["it", "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more...", "60s"],
        ),
        ("endpointslices.discovery.k8s.io", {"addressType": "IPv4"}, ["it", "IPv4", "<unset>", "<unset>", "60s"]),
        (
            "networkpolicies.networking.k8s.io",
            {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}},
            ["it", "a=b", "60s"],
        ),
        (
            "resourcequotas",
            {"status": {"hard": {"pods": "2", "limits.cpu": "4"}, "used": {"pods": "1"}}},
            ["it", "pods: 1/2", "limits.cpu: 0/4", "60s"],
        ),
        (
            "rolebindings.rbac.authorization.k8s.io",
            {
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
            },
            ["it", "Role/r", "60s", "u", "", "n/s"],
        ),
        (
            "volumeattachments.storage.k8s.io",
            {"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}},
            ["it", "d", "pv", "n", False, "60s"],
        ),
        (
            "csidrivers.storage.k8s.io",
            {"spec": {"volumeLifecycleModes": ["Persistent"]}},
            ["it", True, False, False, "<unset>", False, "Persistent", "60s"],
        ),
        ("controllerrevisions.apps", {"revision": 3}, ["it", "<none>", 3, "60s"]),
        ("runtimeclasses.node.k8s.io", {"handler": "runc"}, ["it", "runc", "60s"]),
    ],
)
def test_an_object_is_printed_in_its_cells(resource: str, body: dict[str, Any], cells: list[Any]) -> None:
    assert PRINTERS[resource].cells({"metadata": METADATA, **body}, NOW) == cells


@pytest.mark.parametrize("resource", sorted(PRINTERS))
def test_an_empty_object_has_a_cell_for_every_column(resource: str) -> None:
    empty = {"metadata": METADATA, "spec": {}, "status": {}}
    printer = PRINTERS[resource]
    assert len(printer.cells(empty, NOW)) == len(printer.columns)
