"""Tables on a terminal: no column vanishes, text is on the left and numbers are on the right."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kubestow.reports.model import Table, counted
from kubestow.reports.text import View


def shown(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(View([table]))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_names_wrap_and_never_vanish(width: int) -> None:
    pods = ("production/checkout-service-6f4b9c7d5b-x2x7q", "staging/a")
    nodes = ("ip-10-0-112-7.eu-west-1.compute.internal", "b")
    why = "its node uses more than the target: 92% of cpu (target: 50%), 81% of memory (target: 60%)"
    table = Table("evicted pod", "from", "plugin", "why", "comes back")
    for pod, node in zip(pods, nodes, strict=True):
        table.add(pod, node, "LowNodeUtilization", why, f"on {nodes[0]}")
    lines = [line.rstrip() for line in shown(table, width).splitlines()]
    assert max(map(len, lines)) <= width
    starts = [lines[0].find(heading.split()[0]) for heading in table.headings]
    assert sorted(set(starts)) == starts and starts[0] == 0, "five columns"
    for column, text in enumerate((pods[0], nodes[0], "LowNodeUtilization", why)):
        end = starts[column + 1]
        cells = [line[starts[column] : end].strip() for line in lines[1:]]
        assert "".join(cells).replace(" ", "").startswith(text.replace(" ", ""))


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    table = Table("metric", "baseline", "candidate", "change", "")
    table.add("pending", "1,200", "3 of 40", "-", "worse")
    table.add("meanWait", "0.5 s", "12.5%", "+19.76", "")
    assert [table.is_right(column) for column in range(5)] == [False, True, True, True, False]
    named = Table("pods", "owner", right=("pods",))
    named.add("…", "7")
    assert (named.is_right(0), named.is_right(1)) == (True, False)


def test_one_of_something_is_singular() -> None:
    assert [counted(count, "more node") for count in (0, 1, 2, 1213)] == [
        "0 more nodes",
        "1 more node",
        "2 more nodes",
        "1,213 more nodes",
    ]
    assert [counted(count, "pod is", "pods are") for count in (1, 2)] == ["1 pod is", "2 pods are"]
