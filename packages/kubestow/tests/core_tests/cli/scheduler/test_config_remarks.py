"""What a valid configuration says without effect is said: by ``kubestow config check``, and in the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow.cli import main
from kubestow.cli.input.scheduler import SchedulerInput
from kubestow.cli.scheduler_app import SchedulerApp

PLUGIN = """
from kubestow.framework.interface import NodeScorePlugin

class Mine(NodeScorePlugin):
    name = "Mine"

    def score_node(self, state, pod, node_info):
        return 1
"""


def configured(path: Path, *plugin_config: dict[str, Any], enabled: tuple[str, ...] = ()) -> Path:
    profile = {
        "plugins": {
            "multiPoint": {"enabled": [{"name": name} for name in enabled], "disabled": [{"name": "NodeName"}]}
        },
        "pluginConfig": list(plugin_config),
    }
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (path / "config.yaml").write_text(yaml.safe_dump({**document, "profiles": [profile]}))
    (path / "mine.py").write_text(PLUGIN)
    return path / "config.yaml"


CASES = [
    ({"name": "NodeAfinity", "args": {"a": 1}}, 'no plugin NodeAfinity is registered, did you mean "NodeAffinity"?'),
    ({"name": "NodeName", "args": {"a": 1}}, "the profile does not enable plugin NodeName"),
    ({"name": "ImageLocality", "args": {"a": 1}}, "plugin ImageLocality takes no args"),
]


@pytest.mark.parametrize(("entry", "problem"), CASES)
def test_args_without_effect_are_a_remark(
    entry: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = configured(tmp_path, entry)
    with pytest.raises(SystemExit) as ended:
        main(["config", "check", str(file)])
    found = capsys.readouterr()
    assert (ended.value.code, found.out) == (0, f"{file}: valid\n")
    assert "remark: profiles[0].pluginConfig[0]: the args have no effect: " + problem in found.err
    assert found.err.startswith(f"{file}:5:")


@pytest.mark.parametrize(("entry", "problem"), CASES)
def test_a_scheduler_logs_args_without_effect(
    entry: dict[str, Any], problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        SchedulerApp.create(source=configured(tmp_path, entry))
    assert [problem in record.getMessage() for record in caplog.records] == [True]


def test_args_with_effect_are_not_remarked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    entries: list[dict[str, Any]] = [
        {"name": "NodeResourcesFit", "args": {}},
        {"name": "Mine", "args": {"a": 1}},
        {"name": "NodeAffinity"},
    ]
    file = configured(tmp_path, *entries, enabled=("Mine",))
    with pytest.raises(SystemExit):
        main(["config", "check", str(file), "--plugin", f"{tmp_path / 'mine.py'}:Mine"])
    assert capsys.readouterr().err == ""
    SchedulerApp.create(source=file, plugin_references=[f"{tmp_path / 'mine.py'}:Mine"])
    assert not caplog.records


def test_a_plugin_that_no_profile_enables_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file, reference = configured(tmp_path), f"{tmp_path / 'mine.py'}:Mine"
    with pytest.raises(SystemExit):
        main(["config", "check", str(file), "--plugin", reference])
    assert "remark: no profile enables plugin Mine, so it is never called" in capsys.readouterr().err
    SchedulerApp.create(source=file, plugin_references=[reference])
    SchedulerInput(file, [reference], "").read().read_configuration()  # what the commands about a dump do
    assert [record.getMessage() for record in caplog.records] == [
        "no profile enables plugin Mine, so it is never called"
    ] * 2
