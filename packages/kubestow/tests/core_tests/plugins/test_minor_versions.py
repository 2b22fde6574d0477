"""Rules of the plugins that are not the same in all minor versions: each before and since its change."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.affinities import required_affinity, term
from core_tests.plugins.volumes import plugin_harness
from kubestow.framework.status import Code
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.decision.result import Failed
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import DRIVER, claim, csi_driver, csi_node, mounting, storage_class, volume

ZONE = "topology.kubernetes.io/zone"


def before_and_since(behaviour: Behaviour, before: Any, since: Any) -> pytest.MarkDecorator:
    """Parametrize a test by the minor versions around a behaviour's change, and what is expected in each."""
    number = behaviour.value.since
    cases = [(Minor(number - 1), before), (Minor(number), since)]
    return pytest.mark.parametrize(("minor", "expected"), cases, ids=_id)


def _id(value: Any) -> str:
    """The same in every process; the order of a set is not."""
    return str(sorted(value) if isinstance(value, set) else value)


def sidecar(**fields: Any) -> dict[str, Any]:
    return {"initContainers": [{"name": "proxy", "restartPolicy": "Always", **fields}]}


def code_of(harness: PluginHarness, incoming: Any, name: str) -> Code:
    """The code of the status of an infeasible node."""
    feasibility = harness.decide(incoming).feasibility
    assert feasibility is not None
    return feasibility.diagnose().status(harness.cluster.nodes.rows[name]).code


# -- pods and their requests ---------------------------------------------------------------------------------------


@before_and_since(Behaviour.HOST_PORTS_OF_SIDECARS_COUNT, {"a"}, set())
def test_host_ports_of_sidecars(minor: Minor, expected: set[str]) -> None:
    ports = sidecar(ports=[{"hostPort": 80, "containerPort": 80}])
    harness = PluginHarness([node("a")], [pod("first", node="a", spec=ports)], minor=minor)
    assert harness.feasible(pod("second", host_ports=[80])) == expected


@before_and_since(Behaviour.NODES_TOO_SMALL_ARE_UNRESOLVABLE, Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
def test_nodes_that_are_too_small(minor: Minor, expected: Code) -> None:
    assert code_of(PluginHarness([node("a", cpu="1")], minor=minor), pod("p", cpu="2"), "a") is expected


@before_and_since(Behaviour.FIT_SCORES_WITHOUT_POD_LEVEL_REQUESTS, 50, 75)
def test_scores_of_pods_with_pod_level_requests(minor: Minor, expected: int) -> None:
    harness = PluginHarness([node("a", cpu="4", memory="16Gi")], minor=minor, gates={"PodLevelResources": True})
    whole = {"resources": {"requests": {"cpu": "2", "memory": "8Gi"}}}
    assert harness.scores(pod("p", cpu="1", memory="4Gi", spec=whole), "NodeResourcesFit") == {"a": expected}


@pytest.mark.parametrize(("enabled", "expected"), [(True, {"a"}), (False, set())])
def test_sidecars_need_their_gate(enabled: bool, expected: set[str]) -> None:
    harness = PluginHarness([node("a")], minor=Minor(32), gates={"SidecarContainers": enabled})
    assert harness.feasible(pod("p", spec=sidecar())) == expected


# -- filters and their reasons -------------------------------------------------------------------------------------


@before_and_since(
    Behaviour.TAINT_REASON_NAMES_NO_TAINT,
    {"a": "node(s) had untolerated taint {k: v}", "b": "node(s) had untolerated taint {l: }"},
    {"a": "node(s) had untolerated taint(s)", "b": "node(s) had untolerated taint(s)"},
)
def test_the_reason_for_an_untolerated_taint(minor: Minor, expected: dict[str, str]) -> None:
    tainted = [
        node("a", taints=["m=v:PreferNoSchedule", "k=v:NoSchedule", "l=:NoExecute"]),
        node("b", taints=["l=:NoExecute"]),
    ]
    harness = PluginHarness(tainted, minor=minor)
    assert harness.rejections(pod("p")) == {name: ("TaintToleration", (reason,)) for name, reason in expected.items()}
    assert harness.rejections(pod("q")) == harness.rejections(pod("p")), "the statuses of cached results stay"


@before_and_since(Behaviour.NAMESPACE_SELECTORS_MATCH_WITHOUT_LABELS, set(), {"a"})
def test_a_namespace_selector_that_matches_without_labels(minor: Minor, expected: set[str]) -> None:
    absent = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    affinity = required_affinity(term("db") | {"namespaceSelector": absent})
    harness = PluginHarness(
        [node("a", zone="z")], [pod("db", namespace="x", labels={"app": "db"}, node="a")], minor=minor
    )
    harness.cluster.put_namespace("x", {"team": "blue"})
    assert harness.feasible(pod("p", affinity=affinity)) == expected


def spread(skew: int, selector: str, when: str) -> dict[str, Any]:
    selects = {"matchLabels": {selector: ""}}
    return {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selects}


@before_and_since(Behaviour.SPREAD_CONSTRAINTS_COUNT_APART, {"a", "b"}, {"b"})
def test_hard_spread_constraints_with_one_topology_key(minor: Minor, expected: set[str]) -> None:
    """The last constraint's counts, 0 in both zones, stand for those of the first one."""
    harness = PluginHarness(
        [node("a", zone="a"), node("b", zone="b")], [pod("x", labels={"first": ""}, node="a")], minor=minor
    )
    constraints = [spread(1, "first", "DoNotSchedule"), spread(1, "last", "DoNotSchedule")]
    assert harness.feasible(pod("p", labels={"first": ""}, spread=constraints)) == expected


@before_and_since(Behaviour.SPREAD_CONSTRAINTS_COUNT_APART, {"b"}, set())
def test_shared_counts_of_a_node_are_those_of_the_last_constraint_that_includes_it(
    minor: Minor, expected: set[str]
) -> None:
    placed = [pod(f"x{n}", labels={"first": ""}, node="b") for n in range(3)]
    tainted = node("a", zone="a", taints=["k=v:NoSchedule"])
    harness = PluginHarness([tainted, node("b", zone="b")], placed, minor=minor)
    last = spread(1, "last", "DoNotSchedule") | {"nodeTaintsPolicy": "Honor"}
    assert harness.feasible(pod("p", spread=[spread(1, "first", "DoNotSchedule"), last])) == expected


@before_and_since(Behaviour.SPREAD_CONSTRAINTS_COUNT_APART, {"b"}, {"a", "b"})
def test_a_pod_changes_shared_counts_once_for_every_constraint_that_matches_it(
    minor: Minor, expected: set[str]
) -> None:
    harness = PluginHarness([node("a", zone="a"), node("b", zone="b")], minor=minor)
    harness.cluster.nominate(harness.info(pod("n", labels={"first": "", "last": ""}, nominated="a")), "a")
    constraints = [spread(1, "first", "DoNotSchedule"), spread(9, "last", "DoNotSchedule")]
    assert harness.feasible(pod("p", spread=constraints)) == expected


@before_and_since(Behaviour.SPREAD_CONSTRAINTS_COUNT_APART, {"a": 40, "b": 200}, {"a": 50, "b": 200})
def test_soft_spread_constraints_with_one_topology_key(minor: Minor, expected: dict[str, int]) -> None:
    placed = [pod(f"x{n}", labels={"first": ""}, node="a") for n in range(4)]
    harness = PluginHarness([node("a", zone="a"), node("b", zone="b")], placed, minor=minor)
    constraints = [spread(1, "first", "ScheduleAnyway"), spread(3, "last", "ScheduleAnyway")]
    assert harness.scores(pod("p", spread=constraints), "PodTopologySpread") == expected


def test_node_inclusion_policies_need_their_gate() -> None:
    constraint = spread(1, "first", "DoNotSchedule") | {"nodeTaintsPolicy": "Honor"}
    tainted = [node("a", zone="a", taints=["k=v:NoSchedule"]), node("b", zone="b")]
    placed = [pod("x", labels={"first": ""}, node="b")]
    for enabled, expected in ((True, {"b"}), (False, set())):
        gates = {"NodeInclusionPolicyInPodTopologySpread": enabled}
        harness = PluginHarness(tainted, placed, minor=Minor(32), gates=gates)
        assert harness.feasible(pod("p", labels={"first": ""}, spread=[constraint])) == expected


@before_and_since(
    Behaviour.NODES_LEFT_OUT_ARE_REPORTED,
    "0/2 nodes are available: 1 Insufficient cpu.",
    "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].",
)
def test_nodes_that_pre_filter_leaves_out(minor: Minor, expected: str) -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [by_name]}}}
    harness = PluginHarness([node("a"), node("b")], [pod("x", cpu="4", node="a")], minor=minor)
    feasibility = harness.decide(pod("p", cpu="1", affinity=affinity)).feasibility
    assert feasibility is not None
    assert feasibility.diagnose().message() == expected
    assert feasibility.diagnose().with_code(Code.UNSCHEDULABLE_AND_UNRESOLVABLE).tolist() == [False, True]


# -- scores --------------------------------------------------------------------------------------------------------


@before_and_since(Behaviour.SCORES_CHANGE_OF_BALANCE, 75, 62)
def test_the_score_of_balance(minor: Minor, expected: int) -> None:
    harness = PluginHarness([node("a", cpu="4", memory="16Gi")], minor=minor)
    assert harness.scores(pod("p", cpu="2", memory="0"), "NodeResourcesBalancedAllocation") == {"a": expected}


@before_and_since(Behaviour.BALANCE_SKIPS_PODS_WITHOUT_REQUESTS, {"a": 75}, {})
def test_the_score_of_balance_without_requests(minor: Minor, expected: dict[str, int]) -> None:
    harness = PluginHarness([node("a", cpu="4")], [pod("x", cpu="2", node="a")], minor=minor)
    assert harness.scores(pod("p"), "NodeResourcesBalancedAllocation") == expected


@pytest.mark.parametrize(("number", "expected"), [(32, 100), (33, 0), (35, 0)])
def test_balance_of_no_resource_at_all(number: int, expected: int) -> None:
    """Where PreScore is disabled; before 1.33 a pod is scored by the resources that count, which may be none."""
    name = "NodeResourcesBalancedAllocation"
    only_gpu = {"name": name, "args": {"resources": [{"name": "example.com/gpu", "weight": 1}]}}
    plugins = {"multiPoint": {"disabled": [{"name": name}]}, "score": {"enabled": [{"name": name}]}}
    profile = {"plugins": plugins, "pluginConfig": [only_gpu]}
    harness = PluginHarness([node("a"), node("b")], profile=profile, minor=Minor(number))
    assert harness.scores(pod("p", cpu="1"), name) == {"a": expected, "b": expected}


@before_and_since(Behaviour.IMAGE_VOLUMES_ARE_IMAGES, 0, 100)
def test_the_images_of_volumes(minor: Minor, expected: int) -> None:
    harness = PluginHarness([node("a", images={"model:1": 2 * 10**9})], minor=minor)
    mounted = {"volumes": [{"name": "model", "image": {"reference": "model:1"}}]}
    assert harness.scores(pod("p", spec=mounted), "ImageLocality") == {"a": expected}


@before_and_since(Behaviour.IMAGE_VOLUMES_RAISE_THE_THRESHOLD, 94, 46)
def test_the_threshold_of_images_of_volumes(minor: Minor, expected: int) -> None:
    harness = PluginHarness([node("a", images={"model:1": 950 * 2**20})], minor=minor)
    mounted = {"volumes": [{"name": "model", "image": {"reference": "model:1"}}, {"name": "x", "emptyDir": {}}]}
    assert harness.scores(pod("p", spec=mounted), "ImageLocality") == {"a": expected}


# -- volumes -------------------------------------------------------------------------------------------------------


@before_and_since(
    Behaviour.READ_WRITE_ONCE_POD_REASON_IS_USE,
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)
def test_the_reason_for_a_claim_in_use(minor: Minor, expected: str) -> None:
    bound = [claim("data", volume="pv", modes=("ReadWriteOncePod",)), volume("pv", claim="data")]
    harness = plugin_harness(node("a"), *bound, pod("first", node="a", spec=mounting("data")), minor=minor)
    rejected = harness.rejections(pod("second", spec=mounting("data")))
    assert rejected == {"a": ("VolumeRestrictions", (expected,))}


@before_and_since(
    Behaviour.VOLUME_AFFINITY_REASON_NAMES_THE_VOLUME,
    "node(s) had volume node affinity conflict",
    "node(s) didn't match PersistentVolume's node affinity",
)
def test_the_reason_for_a_volume_out_of_reach(minor: Minor, expected: str) -> None:
    bound = [claim("data", volume="pv"), volume("pv", claim="data", zone="z")]
    only = {"plugins": {"multiPoint": {"disabled": [{"name": "VolumeZone"}]}}}
    harness = plugin_harness(node("a", zone="a"), *bound, minor=minor, profile=only)
    assert harness.rejections(pod("p", spec=mounting("data"))) == {"a": ("VolumeBinding", (expected,))}


def test_a_claim_with_an_attributes_class_needs_the_gate() -> None:
    """Off by default up to 1.33."""
    delayed = storage_class("slow", provisioner=DRIVER)
    wanted = claim("data", spec={"volumeAttributesClassName": "gold"})
    text = (
        "unsupported volumeAttributesClassName is set on claim default/data when the feature-gate "
        "VolumeAttributesClass is disabled"
    )
    decision = plugin_harness(node("a"), delayed, wanted, minor=Minor(33)).decide(pod("p", spec=mounting("data")))
    assert isinstance(decision, Failed)
    assert text in decision.message
    assert plugin_harness(node("a"), delayed, wanted, minor=Minor(34)).feasible(pod("p", spec=mounting("data")))


@before_and_since(Behaviour.PORTWORX_MIGRATES_EVERYWHERE, {"a", "b"}, {"b"})
def test_where_volumes_of_portworx_count(minor: Minor, expected: set[str]) -> None:
    inline = [{"portworxVolume": {"volumeID": f"v{n}"}} for n in range(2)]
    driver: dict[str, Any] = {"pxd.portworx.com": 1}
    harness = plugin_harness(node("a"), node("b"), csi_node("a", **driver), minor=minor)
    assert harness.feasible(pod("p", spec=mounting(inline=inline))) == expected
    listed = csi_node("a", migrated=["kubernetes.io/portworx-volume"], **driver)
    harness = plugin_harness(node("a"), node("b"), listed, minor=minor)
    assert harness.feasible(pod("p", spec=mounting(inline=inline))) == {"b"}
    placed = pod("x", node="a", spec=mounting(inline=inline[:1]))
    harness = plugin_harness(node("a"), node("b"), csi_node("a", **driver), placed, minor=minor)
    assert harness.feasible(pod("p", spec=mounting(inline=inline[1:]))) == expected


@before_and_since(Behaviour.MISSING_DRIVERS_PREVENT_IF_ASKED, set(), {"a"})
def test_nodes_without_the_driver(minor: Minor, expected: set[str]) -> None:
    bound = [claim("data", volume="pv"), volume("pv", claim="data"), csi_driver(), csi_node("a")]
    harness = plugin_harness(node("a"), *bound, gates={"VolumeLimitScaling": True}, minor=minor)
    assert harness.feasible(pod("p", spec=mounting("data"))) == expected


@before_and_since(Behaviour.VOLUME_LIMITS_ARE_THOSE_OF_CSI_NODES, set(), {"a"})
def test_limits_of_volumes_among_the_allocatable_resources(minor: Minor, expected: set[str]) -> None:
    bound = [claim("data", volume="pv"), volume("pv", claim="data")]
    limited = node("a", allocatable={"attachable-volumes-csi-csi.example.com": "0"})
    assert plugin_harness(limited, *bound, minor=minor).feasible(pod("p", spec=mounting("data"))) == expected
    both = plugin_harness(limited, csi_node("a", csi_example_com=1), *bound, minor=minor)
    assert both.feasible(pod("p", spec=mounting("data"))) == {"a"}, "the limit of the CSINode comes first"
    grown = plugin_harness(limited, *bound, minor=minor)
    assert grown.feasible(pod("p", spec=mounting("data"))) == expected
    grown.cluster.update_node(node("a", allocatable={"attachable-volumes-csi-csi.example.com": "1"}))
    assert grown.feasible(pod("p", spec=mounting("data"))) == {"a"}


def test_a_long_driver_name_is_limited_by_a_resource_that_ends_with_a_hash() -> None:
    name = "driver-with-a-name-of-40-characters-or-so"
    key = "attachable-volumes-csi-driver-with-a-name-of-4" + "239e4a9bea71722b"
    limited = node("a", allocatable={key: "0"})
    bound = [
        claim("data", volume="pv"),
        volume("pv", claim="data", source={"csi": {"driver": name, "volumeHandle": "h"}}),
    ]
    assert plugin_harness(limited, *bound, minor=Minor(31)).feasible(pod("p", spec=mounting("data"))) == set()
