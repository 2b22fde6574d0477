"""docs/first-steps.md: its commands work, and print what it shows. ``.ci/package`` runs it with the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.first_steps.transcript import Session, environment, rewritten, same

from kubestow.version import VERSION
from tests.docs.page_replay import replayed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    now = replayed(PAGE, tmp_path, links={f"kubestow-{VERSION}": ROOT})
    assert same(PAGE, now), now


def test_commands_share_a_folder_and_exports(tmp_path: Path) -> None:
    page = "```text\n# a file of no block that is run\n```\n\n```yaml\n# a.yaml\na: 1\n```\n\n```console\n$ {}\n```\n"
    with Session(tmp_path, environment(tmp_path)) as session:
        assert "$ cat a.yaml\n# a.yaml\na: 1\n```" in rewritten(page.format("cat a.yaml"), session)
        rewritten(page.format("export COLOUR=dark$(echo red)"), session)
        assert "darkred\n" in rewritten(page.format("echo $COLOUR"), session)


def test_what_runs_in_the_background_is_waited_for_and_ended(tmp_path: Path) -> None:
    (tmp_path / "server").write_text(
        "trap 'echo stopped on 127.0.0.1:5311; exit' TERM; echo ready; while :; do sleep 0.05; done"
    )
    page = "```console\n$ bash server &\n$ kill %1\n```\n"
    expected = "```console\n$ bash server &\nready\n$ kill %1\nstopped on 127.0.0.1:40000\n```\n"
    with Session(tmp_path, environment(tmp_path)) as session:
        assert rewritten(page, session) == expected
        assert not same(page, expected)


def test_only_the_widths_of_columns_may_differ() -> None:
    assert same("NAME   AGE\nweb    5s\n", "NAME AGE\nweb  5s\n")
    assert not same("NAME AGE\nweb 5s\n", "NAME AGE\nweb 5s\nlog 5s\n")
