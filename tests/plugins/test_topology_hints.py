"""Which events make pods worth another try that PodTopologySpread or InterPodAffinity refused (semantics 6.10)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.cluster.events import Action, EventResource
from kubestow.testing import node, pod
from tests.plugins.affinities import ZONE, required_affinity, required_anti_affinity, term
from tests.plugins.hints import says_queue

NODE, POD = EventResource.NODE, EventResource.POD


def spread_pod(*, honoring: bool = False, tolerations: Any = (), selector: Any = None) -> Pod:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector or {"matchLabels": {"app": "web"}},
        "nodeTaintsPolicy": "Honor" if honoring else "Ignore",
    }
    return pod("waiting", labels={"app": "web"}, spread=[constraint], tolerations=tolerations)


def web(label: str = "web", *, on: str = "n", namespace: str = "default", **more: Any) -> Pod:
    return pod("other", labels={"app": label}, node=on, namespace=namespace, **more)


def spread_hears(waiting: Pod, old: Any = None, new: Any = None, action: Action | None = None) -> bool:
    return _hears("PodTopologySpread", waiting, old, new, action)


def affinity_hears(waiting: Pod, old: Any = None, new: Any = None, action: Action | None = None) -> bool:
    return _hears("InterPodAffinity", waiting, old, new, action)


def _hears(plugin: str, waiting: Pod, old: Any, new: Any, action: Action | None) -> bool:
    resource = NODE if isinstance(old or new, Node) else POD
    update = Action.UPDATE_NODE_LABEL if resource is NODE else Action.UPDATE_POD_LABEL
    happened = Action.ADD if old is None else Action.DELETE if new is None else update
    return says_queue(plugin, waiting, resource, action or happened, old=old, new=new)


# -- PodTopologySpread ---------------------------------------------------------------------------------------------


def test_a_matching_pod_that_comes_or_goes_changes_the_skew() -> None:
    assert spread_hears(spread_pod(), new=web())
    assert spread_hears(spread_pod(), old=web())
    assert not spread_hears(spread_pod(), new=web("db"))


@pytest.mark.parametrize("elsewhere", [web(namespace="other"), web(on="")])
def test_pods_elsewhere_or_on_no_node_do_not_matter(elsewhere: Pod) -> None:
    assert not spread_hears(spread_pod(), new=elsewhere)


def test_a_pod_that_begins_or_ceases_to_match_matters() -> None:
    assert spread_hears(spread_pod(), old=web("db"), new=web())
    assert spread_hears(spread_pod(), old=web(), new=web("db"))
    assert not spread_hears(spread_pod(), old=web("db"), new=web("cache"))


def test_new_tolerations_matter_where_a_constraint_honors_taints() -> None:
    tolerant = [{"operator": "Exists"}]
    action = Action.UPDATE_POD_TOLERATION
    for honoring in (True, False):
        new = spread_pod(honoring=honoring, tolerations=tolerant)
        assert spread_hears(new, old=spread_pod(honoring=honoring), new=new, action=action) is honoring


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        (None, node(zone="a"), True),
        (None, node(), False),
        (node(zone="a"), None, True),
        (node(), None, False),
        (node(), node(zone="a"), True),
        (node(zone="a"), node(), True),
        (node(zone="a"), node(zone="b"), True),
        (node(zone="a"), node(zone="a", labels={"disk": "ssd"}), False),
        (node(zone="a"), node(zone="a", taints=["team=x:NoSchedule"]), True),
        (node(), node(taints=["team=x:NoSchedule"]), False),
    ],
)
def test_nodes_matter_while_they_have_all_labels(old: Node | None, new: Node | None, matters: bool) -> None:
    assert spread_hears(spread_pod(), old=old, new=new) is matters


def test_a_pod_whose_constraints_cannot_be_read_hears_of_no_pod() -> None:
    bad = spread_pod(selector={"matchExpressions": [{"key": "app", "operator": "Near"}]})
    assert not spread_hears(bad, new=web())


# -- InterPodAffinity ----------------------------------------------------------------------------------------------

WANTS = pod("waiting", labels={"app": "web"}, affinity=required_affinity(term("db")))
SHUNS = pod("waiting", labels={"app": "web"}, affinity=required_anti_affinity(term("noisy")))


def test_the_company_that_a_pod_wants_is_worth_a_try() -> None:
    assert affinity_hears(WANTS, new=web("db"))
    assert not affinity_hears(WANTS, new=web("cache"))
    assert not affinity_hears(WANTS, new=web("db", on=""))
    assert not affinity_hears(SHUNS, new=web("noisy"))


def test_the_company_that_a_pod_shuns_may_leave() -> None:
    assert affinity_hears(SHUNS, old=web("noisy"))
    assert not affinity_hears(SHUNS, old=web("db"))


def test_a_pod_that_shunned_this_one_may_leave() -> None:
    assert affinity_hears(WANTS, old=web("x", affinity=required_anti_affinity(term("web"))))
    assert not affinity_hears(WANTS, old=web("x", affinity=required_anti_affinity(term("cache"))))


@pytest.mark.parametrize(
    ("waiting", "old", "new", "matters"),
    [
        (WANTS, "cache", "db", True),
        (WANTS, "db", "cache", False),
        (SHUNS, "noisy", "cache", True),
        (SHUNS, "cache", "noisy", False),
    ],
)
def test_other_pods_may_change_their_labels(waiting: Pod, old: str, new: str, matters: bool) -> None:
    assert affinity_hears(waiting, old=web(old), new=web(new)) is matters


def test_a_change_of_the_pod_itself_is_worth_a_try() -> None:
    assert affinity_hears(WANTS, old=WANTS, new=WANTS)


@pytest.mark.parametrize(
    ("waiting", "old", "new", "matters"),
    [
        (WANTS, None, node(zone="a"), True),
        (WANTS, None, node(), False),
        (SHUNS, None, node(), True),
        (WANTS, node(), node(zone="a"), True),
        (WANTS, node(zone="a"), node(zone="b"), True),
        (WANTS, node(zone="a"), node(), False),
        (SHUNS, node(zone="a"), node(), True),
        (SHUNS, node(zone="a"), node(zone="b"), True),
        (SHUNS, node(), node(zone="a"), False),
        (SHUNS, node(zone="a"), node(zone="a", labels={"disk": "ssd"}), False),
    ],
)
def test_nodes_matter_by_the_labels_that_terms_are_about(
    waiting: Pod, old: Node | None, new: Node, matters: bool
) -> None:
    assert affinity_hears(waiting, old=old, new=new) is matters
