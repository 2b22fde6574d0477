"""The package's docstring lists the in-tree plugins."""

from __future__ import annotations

import re

from kubestow import plugins


def test_the_package_lists_every_in_tree_plugin_in_order_with_a_description() -> None:
    lines = re.findall(r"^(\w+) {2,}\w.*$", plugins.__doc__ or "", re.MULTILINE)
    assert lines == [plugin.name for plugin in plugins.IN_TREE]
    assert len(lines) == len(plugins.in_tree_registry()) == 23
