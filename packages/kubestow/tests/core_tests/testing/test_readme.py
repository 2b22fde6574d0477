"""The examples in the README work."""

from __future__ import annotations

import re
from pathlib import Path

from kubestow.framework.interface import ScorePlugin
from kubestow.testing import PluginHarness, node, pod

README = Path(__file__).parents[5] / "README.md"


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_plugin_in_ten_lines_prefers_cheap_zones() -> None:
    (source,) = (block for block in code("python") if "ZoneCost" in block)
    namespace: dict[str, type[ScorePlugin]] = {}
    exec(source, namespace)
    harness = PluginHarness(
        [node("cheap", zone="zone-a"), node("dear", zone="zone-b")],
        profile={"plugins": {"score": {"enabled": [{"name": "ZoneCost", "weight": 2}]}}},
        plugins=[namespace["ZoneCost"]],
    )
    assert harness.scores(pod(), "ZoneCost") == {"cheap": 180, "dear": 80}
    assert sum(bool(line.strip()) and not line.startswith("#") for line in source.splitlines()) <= 10


def test_the_example_configuration_is_accepted() -> None:
    from kubestow import config

    (document,) = code("yaml")
    assert config.load(document, subject="README").profiles[0].plugins.score.enabled[0].weight == 2
