"""SySched, with the behaviour of upstream's tests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.errors import ConfigurationError
from kubestow.framework.cycle_state import CycleState
from kubestow.testing import PluginHarness, check_plugin, node, nodes, pod
from kubestow_contrib.sysched import SeccompProfile, SySched, references

NAME = "SySched"
PROFILES = {
    "web": ["read", "write", "accept"],
    "batch": ["read", "fork"],
    "all-syscalls": ["read", "write", "fork", "ptrace"],
}


def profile(name: str, calls: list[str], action: str = "SCMP_ACT_ALLOW", namespace: str = "default") -> SeccompProfile:
    syscalls = [{"action": action, "names": calls}, {"action": "SCMP_ACT_ERRNO", "names": ["reboot"]}]
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(len(calls))}
    return convert(SeccompProfile, {"metadata": metadata, "spec": {"syscalls": syscalls}})


def localhost(path: str) -> dict[str, Any]:
    return {"seccompProfile": {"type": "Localhost", "localhostProfile": path}}


def using(name: str, *profiles: str, on: str = "") -> Pod:
    """A pod with a container for each profile."""
    listed = [{"name": each, "securityContext": localhost(f"operator/default/{each}.json")} for each in profiles]
    return pod(name, node=on, spec={"containers": listed or [{"name": "c"}]})


def harness(
    *placed: Pod, profiles: dict[str, list[str]] | None = None, args: dict[str, Any] | None = None
) -> PluginHarness:
    found = PluginHarness(nodes(3), placed, profile=profile_of(NAME, args), plugins=[SySched])
    for name, calls in (PROFILES if profiles is None else profiles).items():
        found.cluster.catalog(SeccompProfile).put(profile(name, calls))
    return found


def raw_scores(found: PluginHarness, tried: Pod) -> list[int]:
    (plugin,) = (each for each in found.profiles["default-scheduler"].plugins if isinstance(each, SySched))
    info, table = found.info(tried), found.cluster.nodes
    scores: list[int] = plugin.score(CycleState(), info, Nodes(table, slice(0, len(table)))).tolist()
    assert scores == [plugin.score_row(CycleState(), info, NodeRow(table, row)) for row in range(len(table))]
    return scores


@pytest.mark.parametrize(
    ("placed", "tried", "expected"),
    [
        ([], using("p", "web"), [0, 0, 0]),
        ([using("a", "web", on="node-0")], using("p", "web"), [0, 0, 0]),
        # The new pod does not use fork, the one that is there neither write nor accept.
        ([using("a", "batch", on="node-1")], using("p", "web"), [0, 1 + 2, 0]),
        ([using(n, "batch", on="node-1") for n in "ab"], using("p", "web"), [0, 1 + 2 + 2, 0]),
        ([using("a", "batch", on="node-1"), using("b", "web", on="node-1")], using("p", "web"), [0, 1 + 2 + 1, 0]),
        # Profiles of several containers are added up.
        ([using("a", "batch", on="node-1")], using("p", "web", "batch"), [0, 0 + 2, 0]),
        # Pods without a profile, or with one that does not exist, use the default profile.
        ([using("a", on="node-2")], using("p", "batch"), [0, 0, 2 + 0]),
        ([using("a", "unknown", on="node-2")], using("p", "batch"), [0, 0, 2 + 0]),
        ([using("a", "batch", on="node-2")], using("p"), [0, 0, 0 + 2]),
    ],
)
def test_the_score_is_what_pods_are_exposed_to(placed: list[Pod], tried: Pod, expected: list[int]) -> None:
    assert raw_scores(harness(*placed), tried) == expected


def test_the_least_exposure_is_best() -> None:
    batch = [using("b", "batch", on="node-1"), using("c", "batch", on="node-2"), using("d", "batch", on="node-2")]
    found = harness(using("a", "web", on="node-0"), *batch)
    assert found.scores(using("p", "web"), NAME) == {"node-0": 100, "node-1": 40, "node-2": 0}


def test_a_pod_without_any_system_calls_is_placed_anywhere() -> None:
    found = harness(using("a", "web", on="node-0"), profiles={"web": ["read"]})
    assert len(set(found.scores(using("p"), NAME).values())) == 1


def test_the_default_profile_is_in_the_args() -> None:
    args = {"defaultProfileNamespace": "default", "defaultProfileName": "batch"}
    assert raw_scores(harness(using("a", on="node-0"), args=args), using("p", "batch")) == [0, 0, 0]


def test_unknown_args_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="defaultProfile"):
        harness(args={"defaultProfile": "batch"})


def test_profiles_that_change_and_pods_that_go_are_noticed() -> None:
    found = harness(using("a", "batch", on="node-1"))
    tried = using("p", "web")
    assert found.scores(tried, NAME)["node-1"] == 0
    found.cluster.catalog(SeccompProfile).put(profile("batch", ["read", "write", "accept", "x"][:3]))
    assert set(found.scores(tried, NAME).values()) == {100}
    found.cluster.catalog(SeccompProfile).put(profile("batch", ["fork"]))
    assert found.scores(tried, NAME)["node-1"] == 0
    found.cluster.remove_pod("uid-default-a")
    assert set(found.scores(tried, NAME).values()) == {100}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("operator/default/web.json", (("default", "web"),)),
        ("localhost/operator/default/web.v1.json", (("default", "web.v1"),)),
        ("operator/web.json", (("operator", "web"),)),
        ("default/web", (("default", "web"),)),
        ("web.json", ()),
        ("", ()),
    ],
)
def test_a_path_names_a_profile(path: str, expected: tuple[tuple[str, str], ...]) -> None:
    found = PluginHarness([node("n")]).info(pod("p", spec={"containers": [], "securityContext": localhost(path)}))
    assert references(found.shape) == expected


@pytest.mark.parametrize(
    "context", [{}, {"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a/b.json"}}]
)
def test_other_security_contexts_name_none(context: dict[str, Any]) -> None:
    found = PluginHarness([node("n")]).info(pod("p", spec={"containers": [], "securityContext": context}))
    assert references(found.shape) == ()


def test_logged_system_calls_and_profiles_without_a_namespace_count() -> None:
    found = harness(using("a", "batch", on="node-1"), profiles={"all-syscalls": ["read"]})
    found.cluster.catalog(SeccompProfile).put(profile("batch", ["read", "fork"], "SCMP_ACT_LOG", namespace=""))
    assert raw_scores(found, using("p")) == [0, 1, 0]


SETS = st.lists(st.sampled_from("abcdef"), max_size=4, unique=True)


@settings(deadline=None, max_examples=50)
@given(sets=st.lists(SETS, min_size=3, max_size=3), placed=st.lists(st.integers(0, 2), max_size=6))
def test_the_score_equals_a_plain_sum(sets: list[list[str]], placed: list[int]) -> None:
    profiles = {f"s{number}": calls for number, calls in enumerate(sets)} | {"all-syscalls": list("abcdefg")}
    pods = [using(f"p{number}", f"s{which}", on="node-0") for number, which in enumerate(placed)]
    used = [set(sets[which]) or set("abcdefg") for which in placed]
    own = set(sets[0]) or set("abcdefg")
    offered = set().union(*used)
    expected = len(offered - own) + sum(len((offered | own) - calls) for calls in used)
    assert raw_scores(harness(*pods, profiles=profiles), using("p", "s0"))[0] == expected


def test_the_contract_is_kept() -> None:
    objects = [profile(name, calls) for name, calls in PROFILES.items()]
    objects += [profile("web", PROFILES["web"][:count]) for count in (1, 2)]
    pods = [using("a", "web"), using("b", "batch"), using("c"), using("d", "web", on="node-0"), using("e", on="node-1")]
    check_plugin(SySched, nodes=nodes(4), pods=pods, objects=objects)
