"""The independent feasibility check of pending pods."""

from __future__ import annotations

import pytest

from kubestow.errors import InvalidQuantity
from kubestow_lab.oracle.feasibility import Feasibility, Shortage, check_feasibility
from lab_tests.oracle.manifests import Manifest, node, pod, requesting


def _check(pending: Manifest, nodes: list[Manifest], *bound: Manifest) -> Feasibility:
    return check_feasibility([pending], nodes, bound)[0]


def test_a_pod_that_fits_is_feasible() -> None:
    result = _check(pod(), [node("a"), node("b")])
    assert result.is_feasible and result.nodes == ("a", "b")


def test_an_exact_fit_is_feasible() -> None:
    bound = pod("b", on="n", containers=requesting(cpu="3"))
    assert _check(pod(), [node(cpu="4")], bound).is_feasible
    assert not _check(pod(containers=requesting(cpu="1001m")), [node(cpu="4")], bound).is_feasible


def test_a_gated_pod_is_not_feasible() -> None:
    result = _check(pod(schedulingGates=[{"name": "quota"}]), [node()])
    assert result.nodes and result.gates == ("quota",) and not result.is_feasible


def test_a_shortage_has_the_request_the_nodes_and_the_largest_capacity() -> None:
    result = _check(pod(containers=requesting(cpu="9")), [node("a", cpu="4"), node("b", cpu="8")])
    assert result.shortages == {"cpu": Shortage(requested=9000, nodes=2, largest=8000)}
    assert (result.eligible, result.large_enough) == (2, 0)


def test_shortages_are_counted_on_the_nodes_large_enough() -> None:
    bound = pod("b", on="large", containers=requesting(cpu="6"))
    result = _check(pod(containers=requesting(cpu="5")), [node("small"), node("large", cpu="8")], bound)
    assert result.shortages == {"cpu": Shortage(requested=5000, nodes=1, largest=8000)}


def test_an_extended_resource_that_no_node_has_is_a_shortage() -> None:
    result = _check(pod(containers=requesting(**{"example.com/fpga": "1"})), [node()])
    assert result.shortages["example.com/fpga"] == Shortage(requested=1, nodes=1, largest=0)


def test_a_zero_request_fits_an_overcommitted_node() -> None:
    bound = pod("b", on="n", containers=requesting(cpu="9"))
    assert _check(pod(containers=requesting(cpu="0")), [node()], bound).is_feasible


def test_the_number_of_pods_is_limited() -> None:
    result = _check(pod(), [node(pods="1")], pod("b", on="n"))
    assert not result.nodes and result.conflicts == {"Too many pods": 1}


def test_terminated_pods_and_pods_of_deleted_nodes_use_no_resources() -> None:
    finished, lost = pod("b", on="n", containers=requesting(cpu="4")), pod("c", on="gone")
    finished["status"]["phase"] = "Succeeded"
    assert _check(pod(), [node(cpu="4")], finished, lost).is_feasible


def test_unresolvable_nodes_are_counted_by_reason() -> None:
    cordoned, tainted = node("a"), node("b")
    cordoned["spec"]["unschedulable"] = True
    tainted["spec"]["taints"] = [{"key": "team", "effect": "NoExecute"}]
    result = _check(pod(), [cordoned, tainted])
    assert (
        result.unresolvable == {"node(s) were unschedulable": 1, "node(s) had untolerated taint {team: }": 1}
        and result.eligible == 0
    )


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, "volume claims"),
        ({"resourceClaims": [{"name": "c"}]}, "resource claims"),
    ],
)
def test_unchecked_constraints_are_reported(spec: Manifest, what: str) -> None:
    result = _check(pod(**spec), [node()])
    assert result.unchecked == (what,) and not result.is_feasible


def test_namespace_selectors_are_reported_as_unchecked() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert _check(pod(affinity=affinity), [node()]).unchecked == ("namespace selectors",)


def test_pods_are_checked_individually_in_order() -> None:
    pods = [pod("small"), pod("large", containers=requesting(cpu="9")), pod("small too")]
    assert [result.is_feasible for result in check_feasibility(pods, [node(cpu="1")], [])] == [True, False, True]


def test_without_nodes_no_pod_is_feasible() -> None:
    assert not _check(pod(), []).is_feasible


def test_an_invalid_quantity_is_an_error() -> None:
    with pytest.raises(InvalidQuantity, match=r"1\.5\.2"):
        check_feasibility([pod(containers=requesting(cpu="1.5.2"))], [node()], [])
