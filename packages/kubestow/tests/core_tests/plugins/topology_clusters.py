"""Strategies for nodes and pods with topology constraints; few distinct values, so that they often match."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from core_tests.plugins.affinities import (
    HOST,
    ZONE,
    preferred_affinity,
    preferred_anti_affinity,
    required_affinity,
    required_anti_affinity,
    term,
)
from kubestow.api.core import Node, Pod
from kubestow.testing import node, pod

NODE_NAMES = ("n0", "n1", "n2", "n3")
POD_NAMES = ("p0", "p1", "p2", "p3", "p4", "p5")

apps = st.sampled_from(("a", "b"))
namespaces = st.sampled_from(("default", "other"))
keys = st.sampled_from((ZONE, HOST, "rack"))


@st.composite
def nodes(draw: st.DrawFn, *, name: str | None = None) -> Node:
    labels = {"rack": draw(st.sampled_from(("r0", "r1")))} if draw(st.booleans()) else {}
    return node(
        name or draw(st.sampled_from(NODE_NAMES)),
        zone=draw(st.sampled_from((None, "", "z0", "z1"))),
        labels=labels | ({"disk": "ssd"} if draw(st.booleans()) else {}),
        taints=["team=x:NoSchedule"] if draw(st.booleans()) else [],
    )


selectors: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just({}),
    apps.map(lambda app: {"matchLabels": {"app": app}}),
    apps.map(lambda app: {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}),
    st.just({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}),
)
namespace_selectors: st.SearchStrategy[Any] = st.one_of(
    st.just({}),
    st.just({"matchLabels": {"team": "x"}}),
    st.just({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}),
)


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if draw(st.booleans()):
        more["namespaces"] = draw(st.lists(namespaces, min_size=1, max_size=2, unique=True))
    if draw(st.integers(0, 2)) == 0:
        more["namespaceSelector"] = draw(namespace_selectors)
    return term(draw(selectors), draw(keys), **more)


@st.composite
def affinities(draw: st.DrawFn) -> dict[str, Any]:
    some = st.lists(terms(), max_size=2)
    weight = draw(st.integers(1, 5))
    pod_affinity = (
        required_affinity(*draw(some))["podAffinity"] | preferred_affinity(*draw(some), weight=weight)["podAffinity"]
    )
    pod_anti_affinity = (
        required_anti_affinity(*draw(some))["podAntiAffinity"]
        | preferred_anti_affinity(*draw(some), weight=weight)["podAntiAffinity"]
    )
    return {"podAffinity": pod_affinity, "podAntiAffinity": pod_anti_affinity}


@st.composite
def constraints(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "maxSkew": draw(st.integers(1, 2)),
        "topologyKey": draw(keys),
        "whenUnsatisfiable": draw(st.sampled_from(("DoNotSchedule", "ScheduleAnyway"))),
        "labelSelector": draw(selectors),
        "minDomains": draw(st.sampled_from((None, 1, 2, 3))),
        "nodeAffinityPolicy": draw(st.sampled_from((None, "Honor", "Ignore"))),
        "nodeTaintsPolicy": draw(st.sampled_from((None, "Honor", "Ignore"))),
        "matchLabelKeys": draw(st.sampled_from(([], ["app"]))),
    }


@st.composite
def pods(draw: st.DrawFn, *, name: str | None = None, on: str | None = None) -> Pod:
    """A pod that may have affinity and spread constraints, assigned to a node if ``on`` names one."""
    return pod(
        name or draw(st.sampled_from(POD_NAMES)),
        namespace=draw(namespaces),
        labels={"app": draw(apps)},
        node=on or "",
        affinity=draw(affinities()) if draw(st.booleans()) else None,
        spread=draw(st.lists(constraints(), max_size=2)),
        node_selector={"disk": "ssd"} if draw(st.integers(0, 3)) == 0 else {},
        tolerations=[{"operator": "Exists"}] if draw(st.booleans()) else [],
        deleting=on is not None and draw(st.integers(0, 4)) == 0,
        metadata={"uid": f"uid-{name}"} if name else {},
    )
