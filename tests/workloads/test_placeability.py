"""Verdicts on pending pods."""

from __future__ import annotations

import pytest

from kubestow.errors import InvalidQuantity
from kubestow.workloads.placeability import Shortage, Verdict, placeable
from tests.workloads.manifests import Manifest, asking, node, pod


def _verdict(pending: Manifest, nodes: list[Manifest], *bound: Manifest) -> Verdict:
    return placeable([pending], nodes, bound)[0]


def test_a_pod_that_fits_could_run() -> None:
    verdict = _verdict(pod(), [node("a"), node("b")])
    assert verdict.could_run and verdict.nodes == ("a", "b")


def test_what_exactly_fits_fits() -> None:
    bound = pod("b", on="n", containers=asking(cpu="3"))
    assert _verdict(pod(), [node(cpu="4")], bound).could_run
    assert not _verdict(pod(containers=asking(cpu="1001m")), [node(cpu="4")], bound).could_run


def test_a_gated_pod_could_not_run_though_there_is_room() -> None:
    verdict = _verdict(pod(schedulingGates=[{"name": "quota"}]), [node()])
    assert verdict.nodes and verdict.gates == ("quota",) and not verdict.could_run


def test_a_shortage_says_what_is_asked_on_how_many_nodes_and_the_most_there_is() -> None:
    verdict = _verdict(pod(containers=asking(cpu="9")), [node("a", cpu="4"), node("b", cpu="8")])
    assert verdict.shortages == {"cpu": Shortage(asked=9000, nodes=2, largest=8000)}
    assert (verdict.usable, verdict.large_enough) == (2, 0)


def test_shortages_are_counted_on_the_nodes_large_enough() -> None:
    bound = pod("b", on="large", containers=asking(cpu="6"))
    verdict = _verdict(pod(containers=asking(cpu="5")), [node("small"), node("large", cpu="8")], bound)
    assert verdict.shortages == {"cpu": Shortage(asked=5000, nodes=1, largest=8000)}


def test_an_extended_resource_that_no_node_has_is_a_shortage() -> None:
    verdict = _verdict(pod(containers=asking(**{"example.com/fpga": "1"})), [node()])
    assert verdict.shortages["example.com/fpga"] == Shortage(asked=1, nodes=1, largest=0)


def test_asking_for_nothing_fits_a_node_that_is_overcommitted() -> None:
    bound = pod("b", on="n", containers=asking(cpu="9"))
    assert _verdict(pod(containers=asking(cpu="0")), [node()], bound).could_run


def test_a_node_without_a_slot_takes_no_pod() -> None:
    verdict = _verdict(pod(), [node(pods="1")], pod("b", on="n"))
    assert not verdict.nodes and verdict.conflicts == {"without a free pod slot": 1}


def test_finished_pods_and_pods_of_lost_nodes_hold_nothing() -> None:
    finished, lost = pod("b", on="n", containers=asking(cpu="4")), pod("c", on="gone")
    finished["status"]["phase"] = "Succeeded"
    assert _verdict(pod(), [node(cpu="4")], finished, lost).could_run


def test_forbidden_nodes_are_counted_by_what_forbids_them() -> None:
    cordoned, tainted = node("a"), node("b")
    cordoned["spec"]["unschedulable"] = True
    tainted["spec"]["taints"] = [{"key": "team", "effect": "NoExecute"}]
    verdict = _verdict(pod(), [cordoned, tainted])
    assert verdict.excluded == {"cordoned": 1, "tainted team=:NoExecute": 1} and verdict.usable == 0


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, "volume claims"),
        ({"resourceClaims": [{"name": "c"}]}, "resource claims"),
    ],
)
def test_what_cannot_be_judged_is_said(spec: Manifest, what: str) -> None:
    verdict = _verdict(pod(**spec), [node()])
    assert verdict.unjudged == (what,) and not verdict.could_run


def test_affinity_that_reads_labels_of_namespaces_cannot_be_judged() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert _verdict(pod(affinity=affinity), [node()]).unjudged == ("namespace selectors",)


def test_each_pod_is_judged_for_itself_in_order() -> None:
    pods = [pod("small"), pod("large", containers=asking(cpu="9")), pod("small too")]
    assert [verdict.could_run for verdict in placeable(pods, [node(cpu="1")], [])] == [True, False, True]


def test_without_nodes_there_is_no_place() -> None:
    assert not _verdict(pod(), []).could_run


def test_an_unreadable_quantity_is_an_error() -> None:
    with pytest.raises(InvalidQuantity, match=r"1\.5\.2"):
        placeable([pod(containers=asking(cpu="1.5.2"))], [node()], [])
