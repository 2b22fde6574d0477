"""Allocation of node IPs, pod CIDRs and pod IPs: none is assigned twice, released ones are reused last."""

from __future__ import annotations

import pytest

from kubestow_devcluster.kubelets.node_status import NodeAddressAllocator, PodIPAllocator


def test_pod_ips_are_allocated_in_order_from_the_pod_cidr() -> None:
    pods = PodIPAllocator()
    assert [pods.allocate(name, "10.1.2.0/29") for name in "abc"] == ["10.1.2.1", "10.1.2.2", "10.1.2.3"]


def test_a_released_ip_is_the_last_to_be_reused() -> None:
    pods = PodIPAllocator()
    for name in "ab":
        pods.allocate(name, "10.1.2.0/29")
    pods.release("a")
    assert [pods.allocate(name, "10.1.2.0/29") for name in "cdefg"] == [
        f"10.1.2.{number}" for number in (3, 4, 5, 6, 1)
    ]


def test_a_reserved_ip_is_not_allocated() -> None:
    pods = PodIPAllocator()
    pods.reserve("old", "10.1.2.1")
    assert pods.allocate("new", "10.1.2.0/29") == "10.1.2.2"


@pytest.mark.parametrize("pod_cidr", ["10.1.2.0/31", "", "nonsense"])
def test_pod_ips_come_from_the_overflow_network_if_the_pod_cidr_has_none(pod_cidr: str) -> None:
    pods = PodIPAllocator()
    assert [pods.allocate(name, pod_cidr) for name in "ab"] == ["10.64.0.1", "10.64.0.2"]


def test_a_pod_cidr_may_be_ipv6() -> None:
    assert PodIPAllocator().allocate("a", "fd00::/64") == "fd00::1"


def test_addresses_of_other_nodes_are_not_allocated() -> None:
    nodes = NodeAddressAllocator()
    nodes.reserve("172.16.0.1")
    nodes.reserve("10.128.0.0/24")
    assert (nodes.allocate_ip(), nodes.allocate_pod_cidr()) == ("172.16.0.2", "10.128.1.0/24")


def test_there_are_pod_cidrs_for_32768_nodes() -> None:
    nodes = NodeAddressAllocator()
    cidrs = {nodes.allocate_pod_cidr() for _ in range(32_769)}
    assert len(cidrs) == 32_769 and None in cidrs and "10.255.255.0/24" in cidrs
