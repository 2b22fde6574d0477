"""The documentation site: its generated reference and its links. ``make site`` checks the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tools.site import reference
from tools.site.pages import on_page_markdown

from kubestow.cli import COMMANDS
from kubestow.config import feature_specs
from kubestow.plugins import IN_TREE
from kubestow.rules.minors import MINORS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    return reference.pages()


def test_every_command_plugin_and_metric_is_in_the_reference(pages: Mapping[str, str]) -> None:
    assert [name for name in COMMANDS if f"## kubestow {name}" not in pages["commands"]] == []
    assert [plugin.name for plugin in IN_TREE if f"| {plugin.name} |" not in pages["plugins"]] == []
    assert "| `scheduler_pending_pods` | gauge | `queue` | stable |" in pages["metrics"]
    assert "| `scheduler_schedule_attempts_total` | counter | `profile`, `result` | stable |" in pages["metrics"]


def test_feature_gates_are_shown_by_minor_version(pages: Mapping[str, str]) -> None:
    text = pages["feature-gates"]
    assert [name for minor in MINORS for name in feature_specs(minor) if f"| `{name}` |" not in text] == []
    assert f"| Gate | {' | '.join(map(str, MINORS[::-1]))} |" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| `DynamicResourceAllocation` |"))
    *_, in_1_35, in_1_34, in_1_33, _, in_1_31, _ = (cell.strip() for cell in row.split("|"))
    assert (in_1_35, in_1_34) == ("GA on **L**", "GA on")
    assert (in_1_33, in_1_31) == ("BETA off", "ALPHA off")
    assert "| `VolumeCapacityPriority` | – |" in text


def test_configuration_fields_have_their_wire_names_types_and_defaults(pages: Mapping[str, str]) -> None:
    text = pages["configuration"]
    assert "| `podMaxBackoffSeconds` | integer | `10` |" in text
    assert "| `leaseDuration` | duration | `15s` |" in text
    assert "| `profiles` | list of [KubeSchedulerProfile](#kubeschedulerprofile) |  |" in text
    assert "## NodeResourcesFitArgs" in text


@pytest.mark.parametrize(
    ("page", "markdown", "expected"),
    [
        ("index.md", "[a](docs/plugins.md#b) [c](CHANGELOG.md)", "[a](plugins.md#b) [c](changelog.md)"),
        ("install.md", "[deploy](../deploy/README.md#build)", "[deploy](deploy.md#build)"),
        ("deploy.md", "[operate](../docs/operate.md)", "[operate](operate.md)"),
        ("reference/commands.md", "[cli](../cli.md)", "[cli](../cli.md)"),
        (
            "install.md",
            "[the code](../src/kubestow/app.py) [site](https://example.com)",
            "the code [site](https://example.com)",
        ),
        ("index.md", "![nodes](docs/pictures/nodes.png)", "![nodes](pictures/nodes.png)"),
        ("zh/index.md", "![nodes](../pictures/nodes.png)", "![nodes](../pictures/nodes.png)"),
        (
            "index.md",
            "![logo](deploy/logo.png) ![logo](https://example.com/logo.png)",
            "logo ![logo](https://example.com/logo.png)",
        ),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, markdown: str, expected: str) -> None:
    found: Any = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    unused: Any = None
    assert on_page_markdown(markdown, found, unused, unused) == expected


def test_the_site_names_the_generator_hooks_and_is_strict() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    plain = yaml.safe_load("\n".join(line for line in text.splitlines() if "!!python" not in line))
    assert plain["strict"] is True and plain["theme"]["font"] is False
