"""Addresses of nodes and pods: each given once, and again only when it is free."""

from __future__ import annotations

import pytest

from kubestow.devcluster.kubelets.addresses import NodeAddresses, PodAddresses


def test_pods_get_the_addresses_of_their_range_one_after_the_other() -> None:
    pods = PodAddresses()
    assert [pods.take(name, "10.1.2.0/29") for name in "abc"] == ["10.1.2.1", "10.1.2.2", "10.1.2.3"]


def test_an_address_given_back_is_the_last_to_be_given_again() -> None:
    pods = PodAddresses()
    for name in "ab":
        pods.take(name, "10.1.2.0/29")
    pods.release("a")
    assert [pods.take(name, "10.1.2.0/29") for name in "cdefg"] == [f"10.1.2.{number}" for number in (3, 4, 5, 6, 1)]


def test_an_address_in_use_is_not_given() -> None:
    pods = PodAddresses()
    pods.note("old", "10.1.2.1")
    assert pods.take("new", "10.1.2.0/29") == "10.1.2.2"


@pytest.mark.parametrize("range_", ["10.1.2.0/31", "", "nonsense"])
def test_pods_share_addresses_where_a_range_has_none(range_: str) -> None:
    pods = PodAddresses()
    assert [pods.take(name, range_) for name in "ab"] == ["10.64.0.1", "10.64.0.2"]


def test_a_range_may_be_of_the_sixth_version() -> None:
    assert PodAddresses().take("a", "fd00::/64") == "fd00::1"


def test_nodes_get_what_no_other_node_has() -> None:
    nodes = NodeAddresses()
    nodes.note("172.16.0.1")
    nodes.note("10.128.0.0/24")
    assert (nodes.address(), nodes.pod_range()) == ("172.16.0.2", "10.128.1.0/24")


def test_there_are_ranges_for_32768_nodes() -> None:
    nodes = NodeAddresses()
    given = {nodes.pod_range() for _ in range(32_769)}
    assert len(given) == 32_769 and None in given and "10.255.255.0/24" in given
