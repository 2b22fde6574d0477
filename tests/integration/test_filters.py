"""Filters and scores (semantics 11.3): each case is a cluster, a pod, and the nodes it may be bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object

ZONE, HOST = "zone", "kubernetes.io/hostname"


def labels(**matching: str) -> Object:
    return {"matchLabels": matching}


def expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def term(selector: Object, *, key: str = ZONE, **more: Any) -> Object:
    return {"labelSelector": selector, "topologyKey": key, **more}


def affinity(*terms: Object) -> Object:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def anti(*terms: Object) -> Object:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def node_affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def spread(key: str, skew: int = 1, **more: Any) -> Object:
    hard = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {**hard, "labelSelector": labels(app="x"), **more}


def namespace(name: str, **marks: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}


def container(**resources: str) -> Object:
    return {"name": "c", "image": "x", "resources": {"limits": resources, "requests": resources}}


SOFT = "x=y:PreferNoSchedule"
SIDECAR = container(cpu="3", memory="8Gi") | {"restartPolicy": "Always"}
A, B = node("a", labels={ZONE: "1"}), node("b", labels={ZONE: "2"})
TWO = [A, B]
WEB = pod("web", node="a", labels={"app": "web", "tier": "front"})


async def check(
    cluster: ClusterFixture, existing: Sequence[Node | Pod | Object], new: Pod, expected: Sequence[str]
) -> None:
    """The pod is bound to one of the expected nodes, or is unschedulable if there are none."""
    await cluster.create(*existing, new)
    async with cluster.scheduler():
        if expected:
            assert (await cluster.bound(new.metadata.name))[0] in expected
        else:
            await cluster.pending_messages(new.metadata.name)


INTER_POD_AFFINITY = {
    "In": ([*TWO, WEB], affinity(term(expression("app", "In", "web", "other"))), "a"),
    "In, no matching pod": ([*TWO, WEB], affinity(term(expression("app", "In", "other"))), ""),
    "NotIn": ([*TWO, WEB], affinity(term(expression("app", "NotIn", "other"))), "a"),
    "Exists": ([*TWO, WEB], affinity(term(expression("tier", "Exists"))), "a"),
    "DoesNotExist": ([*TWO, WEB], affinity(term(expression("absent", "DoesNotExist"))), "a"),
    "pods of another namespace do not count": (
        [namespace("far"), *TWO, pod("web", namespace="far", node="a", labels={"app": "web"})],
        affinity(term(labels(app="web"))),
        "",
    ),
    "another namespace by name": (
        [namespace("far"), *TWO, pod("web", namespace="far", node="a", labels={"app": "web"})],
        affinity(term(labels(app="web"), namespaces=["far"])),
        "a",
    ),
    "a namespace by its labels": (
        [namespace("far", team="x"), *TWO, pod("web", namespace="far", node="a", labels={"app": "web"})],
        affinity(term(labels(app="web"), namespaceSelector=labels(team="x"))),
        "a",
    ),
    "a namespace with other labels": (
        [namespace("far", team="y"), *TWO, pod("web", namespace="far", node="a", labels={"app": "web"})],
        affinity(term(labels(app="web"), namespaceSelector=labels(team="x"))),
        "",
    ),
    "all terms must hold": (
        [*TWO, WEB],
        affinity(term(labels(app="web")), term(labels(tier="back"))),
        "",
    ),
    "all terms hold": ([*TWO, WEB], affinity(term(labels(app="web")), term(labels(tier="front"))), "a"),
    "anti-affinity": ([*TWO, WEB], anti(term(labels(app="web"))), "b"),
    "anti-affinity to all": (
        [*TWO, WEB, pod("more", node="b", labels={"app": "web"})],
        anti(term(labels(app="web"))),
        "",
    ),
    "affinity and anti-affinity": (
        [*TWO, WEB, pod("db", node="a", labels={"app": "db"})],
        affinity(term(labels(app="web"))) | anti(term(labels(app="db"))),
        "",
    ),
    "the anti-affinity of existing pods": (
        [*TWO, pod("shy", node="a", affinity=anti(term(labels(app="new"))))],
        {},
        "b",
    ),
    "the first of its kind needs only itself": (TWO, affinity(term(labels(app="new"))), "ab"),
    "a topology that no node has": ([*TWO, WEB], affinity(term(labels(app="web"), key="rack")), ""),
    "the same domain on two nodes": (
        [A, node("c", labels={ZONE: "1"}, cpu="1"), pod("full", node="a", cpu="4"), WEB],
        affinity(term(labels(app="web"))),
        "c",
    ),
    "anti-affinity by domain and not by node": (
        [A, node("c", labels={ZONE: "1"}), B, WEB],
        anti(term(labels(app="web"))),
        "b",
    ),
}


@pytest.mark.parametrize(("existing", "wanted", "expected"), INTER_POD_AFFINITY.values(), ids=INTER_POD_AFFINITY.keys())
async def test_required_inter_pod_affinity_selects_nodes(
    cluster: ClusterFixture, existing: list[Any], wanted: Object, expected: str
) -> None:
    await check(cluster, existing, pod("new", cpu="500m", labels={"app": "new"}, affinity=wanted), expected)


TAINTED = node("a", taints=["level=10:NoSchedule"])
TAINTS: dict[str, tuple[str, str, str, bool]] = {
    "equal": ("Equal", "10", "NoSchedule", True),
    "another value": ("Equal", "11", "NoSchedule", False),
    "exists": ("Exists", "", "NoSchedule", True),
    "another effect": ("Exists", "", "NoExecute", False),
    "every effect": ("Exists", "", "", True),
    "greater": ("Gt", "5", "NoSchedule", True),
    "not greater": ("Gt", "10", "NoSchedule", False),
    "greater than a negative number": ("Gt", "-5", "NoSchedule", True),
    "greater than zero": ("Gt", "0", "NoSchedule", True),
    "less": ("Lt", "11", "NoSchedule", True),
    "not less": ("Lt", "10", "NoSchedule", False),
    "less than a large number": ("Lt", "9223372036854775807", "NoSchedule", True),
}


@pytest.mark.parametrize(("operator", "value", "effect", "tolerated"), TAINTS.values(), ids=TAINTS.keys())
async def test_tolerations_match_taints(
    cluster: ClusterFixture, operator: str, value: str, effect: str, tolerated: bool
) -> None:
    toleration = {"key": "level", "operator": operator, "value": value, "effect": effect}
    await cluster.create(TAINTED, pod("new", tolerations=[{k: v for k, v in toleration.items() if v}]))
    async with cluster.scheduler(gates={"TaintTolerationComparisonOperators": True}):
        await (cluster.bound("new") if tolerated else cluster.pending_messages("new"))


def spread_over(*counts: int) -> list[Any]:
    """Nodes a, b, … in zones of two, each with its count of matching pods."""
    names = "abcd"[: len(counts)]
    objects: list[Any] = [node(name, labels={ZONE: str(number // 2)}) for number, name in enumerate(names)]
    for name, count in zip(names, counts, strict=True):
        objects += [pod(f"{name}-{number}", node=name, labels={"app": "x"}) for number in range(count)]
    return objects


SPREAD: dict[str, tuple[list[Any], list[Object], str]] = {
    "1/1/0/1 on nodes": (spread_over(1, 1, 0, 1), [spread(HOST)], "c"),
    "2/0/0/1 on nodes": (spread_over(2, 0, 0, 1), [spread(HOST)], "bc"),
    "a larger skew": (spread_over(2, 0, 0, 1), [spread(HOST, 2)], "bcd"),
    "over zones": (spread_over(1, 1, 0, 1), [spread(ZONE)], "cd"),
    "over zones and nodes": (spread_over(1, 1, 0, 1), [spread(ZONE), spread(HOST)], "c"),
    "zones and nodes that contradict each other": (spread_over(1, 0, 2, 2), [spread(ZONE), spread(HOST)], "b"),
    "too few domains": (spread_over(1, 1), [spread(HOST, minDomains=3)], ""),
    "enough domains": (spread_over(1, 0), [spread(HOST, minDomains=2)], "b"),
    "nodes that the pod does not select do not count": (
        [*spread_over(1, 1), node("z", labels={ZONE: "9"}, taints=["x=y:NoSchedule"])],
        [spread(HOST, nodeTaintsPolicy="Honor")],
        "ab",
    ),
    "tainted nodes count by default": (
        [*spread_over(1, 1), node("z", labels={ZONE: "9"}, taints=["x=y:NoSchedule"])],
        [spread(HOST)],
        "",
    ),
    "copies of one version": (
        [*spread_over(0, 0), pod("old", node="a", labels={"app": "x", "version": "1"})],
        [spread(HOST, matchLabelKeys=["version"])],
        "ab",
    ),
    "nodes without the key": ([node("bare"), *spread_over(1, 0)], [spread("zone")], "ab"),
}


@pytest.mark.parametrize(("existing", "constraints", "expected"), SPREAD.values(), ids=SPREAD.keys())
async def test_hard_topology_spread_constraints_select_nodes(
    cluster: ClusterFixture, existing: list[Any], constraints: list[Object], expected: str
) -> None:
    await check(cluster, existing, pod("new", labels={"app": "x", "version": "2"}, spread=constraints), expected)


def by_label(operator: str, *values: str) -> Object:
    return expression(ZONE, operator, *values)


NODE_AFFINITY = {
    "In": (node_affinity(by_label("In", "1", "3")), "a"),
    "NotIn": (node_affinity(by_label("NotIn", "1")), "b"),
    "Exists": (node_affinity(by_label("Exists")), "ab"),
    "DoesNotExist": (node_affinity(by_label("DoesNotExist")), ""),
    "Gt": (node_affinity(by_label("Gt", "1")), "b"),
    "Lt": (node_affinity(by_label("Lt", "2")), "a"),
    "one of several terms": (node_affinity(by_label("In", "9"), by_label("In", "2")), "b"),
    "the node's name": (
        node_affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}),
        "b",
    ),
}


@pytest.mark.parametrize(("wanted", "expected"), NODE_AFFINITY.values(), ids=NODE_AFFINITY.keys())
async def test_required_node_affinity_selects_nodes(cluster: ClusterFixture, wanted: Object, expected: str) -> None:
    await check(cluster, TWO, pod("new", affinity=wanted), expected)


RESOURCES: dict[str, tuple[list[Any], Pod, str]] = {
    "requests of other pods are subtracted": ([*TWO, pod("x", node="a", cpu="3")], pod("new", cpu="2"), "b"),
    "memory": ([node("a", memory="1Gi"), node("b", memory="4Gi")], pod("new", memory="2Gi"), "b"),
    "the number of pods": ([node("a", max_pods=1), B, pod("x", node="a")], pod("new"), "b"),
    "extended resources": (
        [node("a"), node("b", allocatable={"example.com/gpu": "2"})],
        pod("new", spec={"containers": [container(**{"example.com/gpu": "2"})]}),
        "b",
    ),
    "nothing left": ([*TWO, pod("x", node="a", cpu="4"), pod("y", node="b", cpu="4")], pod("new", cpu="1"), ""),
}


@pytest.mark.parametrize(("existing", "new", "expected"), RESOURCES.values(), ids=RESOURCES.keys())
async def test_requests_select_nodes(cluster: ClusterFixture, existing: list[Any], new: Pod, expected: str) -> None:
    await check(cluster, existing, new, expected)


@pytest.mark.parametrize("declared", [["RestartAllContainersOnContainerExits"], []])
async def test_pods_need_nodes_that_declare_their_features(cluster: ClusterFixture, declared: list[str]) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    container = {"name": "c", "image": "x", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    existing = node("a", status={"declaredFeatures": declared})
    sent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [container]}}
    await cluster.create(existing, sent)
    async with cluster.scheduler():
        await (cluster.bound("new") if declared else cluster.pending_messages("new"))


# -- scores ------------------------------------------------------------------------------------------------------


def preferred(kind: str, term: Object, weight: int = 100) -> Object:
    if kind == "nodeAffinity":
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]}}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}}


def image(name: str) -> Object:
    return {"containers": [{"name": "c", "image": name}]}


SCORES: dict[str, tuple[list[Any], Pod, str]] = {
    "preferred nodes": (TWO, pod("new", affinity=preferred("nodeAffinity", by_label("In", "2"))), "b"),
    "preferred pod affinity": (
        [*TWO, WEB],
        pod("new", affinity=preferred("podAffinity", term(labels(app="web")))),
        "a",
    ),
    "preferred pod anti-affinity": (
        [*TWO, WEB],
        pod("new", affinity=preferred("podAntiAffinity", term(labels(app="web")))),
        "b",
    ),
    "preferred affinity of existing pods": (
        [*TWO, pod("x", node="a", affinity=preferred("podAffinity", term(labels(app="new"))))],
        pod("new", labels={"app": "new"}),
        "a",
    ),
    "preferred anti-affinity of existing pods": (
        [*TWO, pod("x", node="a", affinity=preferred("podAntiAffinity", term(labels(app="new"))))],
        pod("new", labels={"app": "new"}),
        "b",
    ),
    "the least used": ([*TWO, pod("x", node="a", cpu="2", memory="8Gi")], pod("new", cpu="1"), "b"),
    "requests of sidecars count": (
        [
            *TWO,
            pod(
                "x", node="a", spec={"initContainers": [container(cpu="3", memory="8Gi") | {"restartPolicy": "Always"}]}
            ),
        ],
        pod("new", cpu="1"),
        "b",
    ),
    "no soft taints": ([node("a", taints=[SOFT]), B], pod("new"), "b"),
    "fewer soft taints": (
        [
            node("a", taints=["x=y:PreferNoSchedule", "z=y:PreferNoSchedule"]),
            node("b", taints=[SOFT]),
        ],
        pod("new"),
        "b",
    ),
    "tolerated soft taints": (
        [node("a", taints=[SOFT]), node("b", taints=["z=y:PreferNoSchedule"])],
        pod("new", tolerations=[{"key": "z", "operator": "Exists"}]),
        "b",
    ),
    "the node has the image": (
        [node("a"), node("b", images={"registry.example/large:1": 2 * 10**9})],
        pod("new", spec=image("registry.example/large:1")),
        "b",
    ),
    "soft topology spread": (
        spread_over(1, 0, 1, 1),
        pod("new", labels={"app": "x"}, spread=[spread(HOST, whenUnsatisfiable="ScheduleAnyway")]),
        "b",
    ),
}


@pytest.mark.parametrize(("existing", "new", "expected"), SCORES.values(), ids=SCORES.keys())
async def test_scores_select_the_preferred_node(
    cluster: ClusterFixture, existing: list[Any], new: Pod, expected: str
) -> None:
    await check(cluster, existing, new, expected)


async def test_pods_of_a_service_are_spread_by_default(cluster: ClusterFixture) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]},
    }
    pods = [pod(f"p{number}", labels={"app": "x"}) for number in range(4)]
    await cluster.create(service, *(node(name) for name in "abcd"), *pods)
    async with cluster.scheduler():
        assert sorted(await cluster.bound("p0", "p1", "p2", "p3")) == ["a", "b", "c", "d"]
