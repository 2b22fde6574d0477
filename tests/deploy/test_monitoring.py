"""The alert rules and the dashboard ask for metrics that exist, in a language Prometheus understands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY

MONITORING = DEPLOY / "monitoring"
NEEDS_PROMTOOL = pytest.mark.skipif(not shutil.which("promtool"), reason="there is no promtool on this machine")


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@NEEDS_PROMTOOL
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Any) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(panel_queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_alert_says_what_to_do() -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def metrics_asked_for() -> set[str]:
    """The names of metrics in all queries, without the suffixes of a histogram's series."""
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    text = " ".join([*panel_queries(), *(rule["expr"] for rule in rules)])
    names = re.findall(r"\b(?:scheduler|rest_client|process|leader_election)_[a-z_]+", text)
    return {name.removesuffix("_bucket") for name in names}
