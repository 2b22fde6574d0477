"""The alert rules and the dashboard use existing metrics and valid PromQL."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core_tests.hang_limit import HANG_LIMIT
from kubestow.config import FeatureGates
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.shadow.report import ShadowMetrics
from tests.deploy.manifests import DEPLOY
from tests.deploy.prometheus import NEEDS_PROMETHEUS, scraping

MONITORING = DEPLOY / "monitoring"
NEEDS_PROMTOOL = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return loaded


def panel_queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$job", "kubestow").replace("$__rate_interval", "5m")


@NEEDS_PROMTOOL
def test_prometheus_accepts_the_alert_rules() -> None:
    command = ["promtool", "check", "rules", str(MONITORING / "alerts.yaml")]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=HANG_LIMIT, check=False)
    assert completed.returncode == 0, completed.stderr


@NEEDS_PROMTOOL
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Any) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(panel_queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    completed = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=HANG_LIMIT, check=False
    )
    assert completed.returncode == 0, completed.stderr


def test_every_alert_has_a_summary_a_description_and_a_severity() -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_panels_do_not_overlap() -> None:
    occupied: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & occupied, panel["title"]
        assert position["x"] + position["w"] <= 24
        occupied |= cells


def alerts() -> dict[str, str]:
    """The expressions of the alert rules by name."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def test_every_queried_metric_is_exposed() -> None:
    observability = Observability(WallClock(), FeatureGates())
    registries = (observability.metrics.registry, ShadowMetrics().registry)
    exposed = {family.name for registry in registries for family in registry.collect()}
    exposed |= {f"{name}_total" for name in exposed}
    queries = " ".join([*panel_queries(), *alerts().values()])
    queried = re.findall(r"\b((?:scheduler|rest_client|process|leader_election|kubestow)_[a-z_]+)", queries)
    assert {name.removesuffix("_bucket") for name in queried} <= exposed


@NEEDS_PROMETHEUS
async def test_prometheus_returns_data_for_every_query(tmp_path: Path) -> None:
    async with scraping(tmp_path) as prometheus:
        await prometheus.until('scheduler_schedule_attempts_total{job="kubestow", result="scheduled"} >= 40')
        await prometheus.until('rate(scheduler_schedule_attempts_total{job="kubestow"}[5m])')
        for expression in panel_queries():
            series = await prometheus.query(expression)
            without = ("error", "preemption", "kubestow_shadow")
            assert series or any(part in expression for part in without), expression
        assert [name for name, expression in alerts().items() if await prometheus.query(expression)] == []


@NEEDS_PROMETHEUS
async def test_an_alert_fires_when_the_scheduler_is_down(tmp_path: Path) -> None:
    async with scraping(tmp_path) as prometheus:
        await prometheus.until('up{job="kubestow"} == 1')
        prometheus.scheduler.kill()
        await prometheus.until(alerts()["KubestowDown"])
