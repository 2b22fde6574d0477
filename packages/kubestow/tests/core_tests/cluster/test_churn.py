"""The memory of a cluster is bounded by the objects that exist, not by those that ever existed."""

from __future__ import annotations

import gc
from random import Random

import pytest

from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import Columns, LabelColumn
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import claim

pytestmark = pytest.mark.usefixtures("only_own_garbage")

HOST = "kubernetes.io/hostname"


def test_label_values_that_no_node_has_any_more_are_dropped() -> None:
    columns = Columns()
    column = LabelColumn(HOST, columns)
    for _ in range(10):
        columns.append_row()
    for number in range(10_000):
        column.set(number % 10, f"node-{number}")
    assert len(column.values) < 100
    assert [column.values[number] for number in column.ids] == [f"node-{number}" for number in range(9_990, 10_000)]
    assert (column.id_of("node-9999"), column.id_of("node-1")) == (column.ids[9], None)


def test_spread_is_counted_correctly_while_nodes_are_replaced() -> None:
    spread = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}}
    pending = pod("pending", labels={"app": "a"}, spread=[spread | selector])
    random = Random(1)
    names = [f"node-{number}" for number in range(4)]
    harness = PluginHarness([node(name) for name in names])
    for number in range(300):
        occupied = random.choice(names)
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node=occupied, labels={"app": "a"})))
        assert harness.feasible(pending) == set(names) - {occupied}
        harness.cluster.remove_pod(f"uid-default-p{number}")
        harness.cluster.remove_node(names.pop(0))
        names.append(f"replaced-{number}")
        harness.cluster.add_node(node(names[-1]))


def test_the_column_of_a_port_that_no_pod_uses_any_more_is_dropped() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    for port in range(1000):
        cluster.put_pod(cluster.shapes.info(pod("p", node="n", host_ports=[port + 1])))
        cluster.remove_pod("uid-default-p")
    assert list(cluster.nodes.ports()) == []


def test_a_catalog_lists_its_objects_in_order_after_additions_and_removals() -> None:
    catalog = Cluster().catalog(PersistentVolumeClaim)
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y"), ("c", "w")):
        catalog.put(claim(name, namespace=namespace))
    assert [found.metadata.name for found in catalog] == ["y", "z", "x", "w"]
    catalog.remove("c", "w")
    catalog.remove("a", "z")
    catalog.put(claim("a", namespace="a"))
    assert [found.metadata.name for found in catalog] == ["a", "y", "x"]
    assert [found.metadata.name for found in catalog.in_namespace("a")] == ["a", "y"]
    assert list(catalog.in_namespace("c")) == []


def test_labels_that_pods_select_but_no_node_has_take_no_columns() -> None:
    harness = PluginHarness([node("n", labels={"disk": "ssd"})])
    for number in range(100):
        assert harness.feasible(pod("p", node_selector={f"tenant-{number}": "x"})) == set()
    assert harness.feasible(pod("p", node_selector={"disk": "ssd"})) == {"n"}
    assert list(harness.cluster.nodes._labels) == ["disk"]


def test_a_label_key_that_appears_disappears_and_appears_again_is_selected_correctly() -> None:
    harness = PluginHarness([node("a"), node("b")])
    selecting = pod("p", node_selector={"disk": "ssd"})
    spreading = pod("q", labels={"app": "a"}, spread=[_spread_over("disk")])
    for number in range(3):
        assert harness.feasible(selecting) == harness.feasible(spreading) == set()
        harness.cluster.update_node(node("a", labels={"disk": "ssd"}))
        assert harness.feasible(selecting) == harness.feasible(spreading) == {"a"}
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node="a", labels={"app": "a"})))
        harness.cluster.update_node(node("b", labels={"disk": "hdd"}))
        assert (harness.feasible(selecting), harness.feasible(spreading)) == ({"a"}, {"b"})
        for name in ("a", "b"):
            harness.cluster.update_node(node(name))
        harness.cluster.remove_pod(f"uid-default-p{number}")
    assert "disk" not in harness.cluster.nodes._labels


def _spread_over(topology_key: str) -> dict[str, object]:
    constraint = {"topologyKey": topology_key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return constraint | {"labelSelector": {"matchLabels": {"app": "a"}}}


def test_resources_that_only_pending_pods_request_take_no_columns() -> None:
    harness = PluginHarness([node("n")])
    for number in range(100):
        assert harness.feasible(pod("p", requests={f"example.com/r{number}": "1"})) == set()
    assert set(harness.cluster.nodes.requested) | set(harness.cluster.nodes.allocatable) <= {
        "cpu",
        "memory",
        "ephemeral-storage",
    }


def test_the_columns_of_resources_that_no_pod_requests_any_more_are_dropped() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    for number in range(1000):
        requests = {f"example.com/r{number}": "1", "cpu": "1"}
        cluster.put_pod(cluster.shapes.info(pod("p", node="n", requests=requests)))
        assert cluster.all_nodes().requested(f"example.com/r{number}").tolist() == [1]
        assert cluster.nodes.pod_table.requested(f"example.com/r{number}").sum() == 1
        cluster.remove_pod("uid-default-p")
    assert len(cluster.nodes.requested) < 100
    assert len(cluster.nodes.pod_table._requested) < 100


def test_the_columns_of_pods_that_have_nothing_in_common_are_dropped_with_them() -> None:
    harness = PluginHarness([node("n"), node("m")])
    columns, shapes = [], []
    for number in range(1500):
        labels = {f"key-{number}": "x"}
        selector = {"labelSelector": {"matchLabels": labels}}
        constraint = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        term = {"topologyKey": HOST, **selector}
        passing = pod(
            f"p{number}",
            node="n",
            labels=labels,
            requests={f"example.com/r{number}": "1"},
            host_ports=[number + 1],
            spread=[constraint | selector],
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        )
        info = harness.info(passing)
        harness.feasible(passing)
        harness.cluster.put_pod(info)
        harness.cluster.remove_pod(info.uid)
        if number % 500 == 499:
            gc.collect()
            columns.append(len(harness.cluster.nodes.columns))
            shapes.append(len(harness.cluster.shapes))
    assert max(columns) < 1200
    assert columns[2] <= columns[1] + 400 and shapes[2] <= shapes[1] + 200
    assert max(shapes) < 600
    assert harness.cluster.counters._by_index_key.keys() <= {
        key for counter in harness.cluster.counters._by_key.values() for key in counter.index_keys or (None,)
    }
    assert harness.cluster.carried_terms._label_keys == {}


def test_versions_of_carried_terms_are_dropped_with_the_pods_that_carried_them() -> None:
    cluster = Cluster()
    versions = []
    for number in range(3000):
        term = {"labelSelector": {"matchLabels": {"app": f"app-{number}"}}, "topologyKey": HOST}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        info = cluster.shapes.info(pod("p", node="n", labels={"app": f"app-{number}"}, affinity=affinity))
        cluster.put_pod(info)
        cluster.remove_pod(info.uid)
        versions.append(cluster.carried_terms.version_for(info.shape.index_keys))
    assert len(cluster.carried_terms._versions) < 2000
    assert versions == sorted(set(versions))


def test_versions_of_device_pools_are_dropped_with_their_allocations() -> None:
    cluster = Cluster()
    catalog, claims = cluster.catalog(ResourceClaim), cluster.resource_claims
    catalog.put(_allocated("kept", "pool"))
    kept = claims.devices.pool_version("driver", "pool")
    for number in range(3000):
        before = claims.devices.pool_version("driver", f"pool-{number}")
        catalog.put(_allocated("c", f"pool-{number}"))
        catalog.remove("ns", "c")
        assert claims.devices.pool_version("driver", f"pool-{number}") > before
    assert len(claims.devices._pool_versions) < 2000
    assert claims.devices.pool_version("driver", "pool") == kept


def _allocated(name: str, pool: str) -> ResourceClaim:
    device = DeviceRequestAllocationResult(request="r", driver="driver", pool=pool, device="device")
    allocation = AllocationResult(devices=DeviceAllocationResult(results=[device]))
    return ResourceClaim(
        metadata=ObjectMeta(namespace="ns", name=name, uid=f"uid-{name}"),
        status=ResourceClaimStatus(allocation=allocation),
    )
