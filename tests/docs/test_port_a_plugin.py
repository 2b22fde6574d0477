"""The Python plugin of docs/port-a-plugin.md works, and keeps the contract."""

from __future__ import annotations

import re
from pathlib import Path

from kubestow.testing import PluginHarness, check_plugin, node, pod

PAGE = (Path(__file__).parents[2] / "docs" / "port-a-plugin.md").read_text(encoding="utf-8")
NODES = [node(name, labels={"example.com/licences": count}) for name, count in (("a", "1"), ("b", "5"), ("c", "9"))]


def test_the_ported_plugin_decides_and_keeps_the_contract() -> None:
    module: dict[str, object] = {"__name__": "licences"}
    exec("".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), module)
    plugin = module["Licences"]
    assert isinstance(plugin, type)
    harness = PluginHarness(
        NODES, plugins=[plugin], profile={"plugins": {"multiPoint": {"enabled": [{"name": "Licences"}]}}}
    )
    assert harness.feasible(pod("p", labels={"licences": "3"})) == {"b", "c"}
    assert harness.rejections(pod("q", labels={"licences": "10"}))["c"] == ("Licences", ("too few licences",))
    check_plugin(plugin, nodes=NODES)
