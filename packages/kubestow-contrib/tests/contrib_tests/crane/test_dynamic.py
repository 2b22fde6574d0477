"""Dynamic, with the policy that crane-scheduler ships."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Node
from kubestow.errors import InputError
from kubestow.testing import PluginHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.crane import Dynamic

POLICY = """
apiVersion: scheduler.policy.crane.io/v1alpha1
kind: DynamicSchedulerPolicy
spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 3m}
  - {name: cpu_usage_max_avg_1h, period: 15m}
  - {name: cpu_usage_max_avg_1d, period: 3h}
  predicate:
  - {name: cpu_usage_avg_5m, maxLimitPecent: 0.65}
  - {name: cpu_usage_max_avg_1h, maxLimitPecent: 0.75}
  - {name: cpu_usage_max_avg_1d, maxLimitPecent: 0}
  - {name: not_synced, maxLimitPecent: 0.1}
  priority:
  - {name: cpu_usage_avg_5m, weight: 0.2}
  - {name: cpu_usage_max_avg_1h, weight: 0.3}
  - {name: cpu_usage_max_avg_1d, weight: 0.5}
  hotValue:
  - {timeRange: 5m, count: 5}
"""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.fixture(autouse=True)
def default_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)


@pytest.fixture
def args(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return {"policyConfigPath": str(tmp_path / "policy.yaml")}


def written(value: str, *, seconds_ago: float = 60, zone: Any = SHANGHAI) -> str:
    return f"{value},{(NOW - timedelta(seconds=seconds_ago)).astimezone(zone):%Y-%m-%dT%H:%M:%SZ}"


def loaded(name: str, short: str = "", hour: str = "", day: str = "", hot: str = "") -> Node:
    metrics = ("cpu_usage_avg_5m", "cpu_usage_max_avg_1h", "cpu_usage_max_avg_1d", "node_hot_value")
    texts = zip(metrics, (short, hour, day, hot), strict=True)
    annotations = {metric: text if "," in text else written(text) for metric, text in texts if text}
    return node(name, metadata={"annotations": annotations})


def harness(nodes: list[Node], args: dict[str, Any]) -> PluginHarness:
    return PluginHarness(nodes, profile=profile_of("Dynamic", args), plugins=[Dynamic])


def test_nodes_above_a_limit_are_rejected(args: dict[str, Any]) -> None:
    nodes = [
        loaded("free", "0.1", "0.2", "0.3"),
        loaded("at-the-limit", "0.65", "0.75", "0.99"),
        loaded("busy", "0.66", "0.76"),
        loaded("was-busy", "0.1", "0.76"),
        loaded("unknown"),
    ]
    found = harness(nodes, args)
    assert found.feasible(pod()) == {"free", "at-the-limit", "unknown"}
    assert found.rejections(pod()) == {
        "busy": ("Dynamic", ("Load[cpu_usage_avg_5m] of node is too high",)),
        "was-busy": ("Dynamic", ("Load[cpu_usage_max_avg_1h] of node is too high",)),
    }


def test_pods_of_daemon_sets_are_not_rejected(args: dict[str, Any]) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}]
    daemon = pod("agent", metadata={"ownerReferences": owner})
    assert harness([loaded("busy", "0.9")], args).feasible(daemon) == {"busy"}


@pytest.mark.parametrize(
    ("subject", "score"),
    [
        (loaded("n", "0.1", "0.2", "0.3"), 77),
        (loaded("n", "0.1", "0.2", "0.3", hot="2"), 57),
        (loaded("n", "0.6", "0.7", "0.8", hot="9"), 0),
        (loaded("n", "0", "0", "0"), 100),
        (loaded("n"), 0),
        (loaded("n", "0.5"), 10),
        (loaded("n", "0.1", "0.2", "1.5"), 17),
    ],
)
def test_scores(subject: Node, score: int, args: dict[str, Any]) -> None:
    assert harness([subject], args).scores(pod(), "Dynamic") == {"n": score}


@pytest.mark.parametrize(
    "text",
    [
        "-0.9,2026-01-01T07:59:00Z",
        "NaN,2026-01-01T07:59:00Z",
        "Inf,2026-01-01T07:59:00Z",
        "0.9",
        "0.9,",
        "0.9,yesterday",
        "much,2026-01-01T07:59:00Z",
        "0.9,2026-01-01T07:59:00Z,again",
        written("0.9", seconds_ago=8 * 60),  # the period of 3 minutes and 5 more
        written("0.9", seconds_ago=-61),
        written("0.9", zone=ZoneInfo("Asia/Tokyo")),
    ],
)
def test_values_that_do_not_count(text: str, args: dict[str, Any]) -> None:
    found = harness([node("n", metadata={"annotations": {"cpu_usage_avg_5m": text}})], args)
    assert found.feasible(pod()) == {"n"}
    assert found.scores(pod(), "Dynamic") == {"n": 0}


@pytest.mark.parametrize("seconds", [8 * 60 - 1, 0, -60])
def test_values_that_count(seconds: float, args: dict[str, Any]) -> None:
    assert harness([loaded("n", written("0.9", seconds_ago=seconds))], args).feasible(pod()) == set()


def test_the_time_zone_is_that_of_the_environment(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert harness([loaded("n", written("0.9", zone=UTC))], args).feasible(pod()) == set()
    monkeypatch.setenv("TZ", "Nowhere/Land")
    with pytest.raises(InputError, match='TZ: no time zone "Nowhere/Land"'):
        harness([], args)


def test_a_value_in_the_future_is_reported_once(args: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    nodes = [loaded(name, written("0.9", seconds_ago=-3600)) for name in ("a", "b")]
    assert harness(nodes, args).feasible(pod()) == {"a", "b"}
    (record,) = (record for record in caplog.records if "from the future" in record.message)
    assert "node a: annotation cpu_usage_avg_5m" in record.message


def test_results_follow_annotations_and_nodes(args: dict[str, Any]) -> None:
    found = harness([loaded("a", "0.9"), loaded("b", "0.1")], args)
    assert found.feasible(pod()) == {"b"}
    found.cluster.update_node(loaded("a", "0.2"))
    assert found.feasible(pod()) == {"a", "b"}
    found.cluster.remove_node("a")
    found.cluster.update_node(loaded("b", "0.7"))
    assert found.feasible(pod()) == set()


def test_a_rejected_pod_is_tried_again_when_the_load_expires(args: dict[str, Any]) -> None:
    async def scenario(harness: Any) -> None:
        harness.cluster.put(pod("p"))
        await harness.advance(7 * 60 - 5)
        assert harness.node_of("p") == ""
        await harness.advance(60)
        assert harness.node_of("p") == "n"

    profiles = [{"schedulerName": "default-scheduler", **profile_of("Dynamic", args)}]
    in_virtual_time(scenario, loaded("n", "0.9"), plugins=[Dynamic], profiles=profiles)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("spec: [", "invalid YAML"),
        ("kind: Other", "is no apiVersion, Other, expected scheduler.policy.crane.io/v1alpha1"),
        (POLICY.replace("maxLimitPecent: 0.65", "maxLimitPercent: 0.65"), 'did you mean "maxLimitPecent"'),
        (POLICY.replace("maxLimitPecent: 0.65", "maxLimitPecent: -1"), r"spec.predicate\[0\].maxLimitPecent: is -1"),
        (POLICY.replace("weight: 0.3", "weight: heavy"), r"spec.priority\[1\].weight: expected a number"),
        (POLICY.replace("weight: 0.3", "weight: -0.3"), r"spec.priority\[1\].weight: is -0.3"),
        (POLICY.replace("period: 3m", "period: soon"), r"spec.syncPolicy\[0\].period: expected a duration"),
        (POLICY.replace("count: 5", "count: 0"), r"spec.hotValue\[0\].count: is 0, expected at least 1"),
    ],
)
def test_bad_policies_are_rejected(policy: str, problem: str, args: dict[str, Any]) -> None:
    Path(args["policyConfigPath"]).write_text(policy)
    with pytest.raises(InputError, match=problem):
        harness([], args)


def test_a_policy_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.yaml: cannot be read: No such file"):
        harness([], {"policyConfigPath": str(tmp_path / "missing.yaml")})


def test_expiry_is_noticed_without_a_scheduler(args: dict[str, Any]) -> None:
    found = harness([loaded("n", "0.9")], args)
    assert found.feasible(pod()) == set()
    (check,) = found.periodic_work
    asyncio.run(check())  # type: ignore[arg-type]
    found.time += timedelta(minutes=7, seconds=1)
    asyncio.run(check())  # type: ignore[arg-type]
    assert found.feasible(pod()) == {"n"}


def test_the_contract_is_kept(tmp_path: Path, args: dict[str, Any]) -> None:
    check_plugin(Dynamic, args=args, nodes=[loaded("a", "0.9"), loaded("b", "0.1", "0.2", "0.3", hot="2"), loaded("c")])
