"""Charts over time: what is drawn, where, and in which lane."""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.reports.elements import Element
from kubestow.reports.model import AreaRow, AreaRows, Gantt, Period
from kubestow.reports.page import block_element


def elements(found: Element, tag: str, name: str = "") -> Iterator[dict[str, str]]:
    """The attributes of the elements with a tag and a class."""
    attributes = dict(found.attributes)
    if found.tag == tag and name in attributes.get("class", ""):
        yield attributes
    for child in found.children:
        if isinstance(child, Element):
            yield from elements(child, tag, name)


def texts(found: Element, tag: str) -> list[str]:
    here = ["".join(child for child in found.children if isinstance(child, str))] if found.tag == tag else []
    return here + [text for child in found.children if isinstance(child, Element) for text in texts(child, tag)]


def period(start: float, end: float, name: str, *, series: int = 0, is_planned: bool = False) -> Period:
    return Period(0, start, end, series, name, f"{name} ran", is_planned)


def test_periods_that_overlap_are_in_lanes_and_a_name_keeps_its_lane() -> None:
    periods = [
        period(0, 50, "a"),
        period(10, 50, "b", series=1),
        period(50, 60, "b", series=1, is_planned=True),
        period(50, 100, "a", is_planned=True),
    ]
    drawn = block_element(Gantt("jobs", ["n1"], periods, (0, 100), ["x", "y"], now=50))
    first, second = ([box["y"] for box in elements(drawn, "rect", f"series-{n}") if "x" in box] for n in (0, 1))
    assert len({*first}) == len({*second}) == 1
    assert first != second
    assert sum("planned" in box["class"] for box in elements(drawn, "rect", "series-")) == 2
    assert len(list(elements(drawn, "line", "now"))) == 1
    assert texts(drawn, "li") == ["x", "y"]


def test_a_period_of_half_the_time_has_half_of_the_width() -> None:
    drawn = block_element(Gantt("jobs", ["n1"], [period(50, 100, "a")], (0, 100)))
    (ground,), (box,) = elements(drawn, "rect", "ground"), elements(drawn, "rect", "series-0")
    assert float(box["width"]) == float(ground["width"]) / 2
    assert texts(drawn, "title") == ["a ran"]


def test_ticks_are_few_round_times_of_one_unit() -> None:
    drawn = block_element(Gantt("jobs", ["n1"], [period(0, 1, "a")], (-3_600, 10_000)))
    shown = [text for text in texts(drawn, "text") if text != "n1"]
    assert shown == ["-60 min", "-30 min", "0", "30 min", "60 min", "90 min", "120 min", "150 min"]


def test_areas_are_stacked_and_lines_step() -> None:
    row = AreaRow("q", [(0, [0.5, 0.5]), (1, [0.25, 0.0])], line=[1.0, 0.0])
    drawn = block_element(AreaRows("shares", [0, 50, 100], [row]))
    lower, upper = (area["d"] for area in elements(drawn, "path", "series-"))
    (line,) = elements(drawn, "polyline", "level")
    assert lower == "M220.0,13.0 L1088.0,13.0 L1088.0,24.0 L220.0,24.0 Z"
    assert upper == "M220.0,7.5 L654.0,7.5 L654.0,13.0 L1088.0,13.0 L1088.0,13.0 L220.0,13.0 Z"
    assert line["points"] == "220.0,2.0 654.0,2.0 654.0,24.0 1088.0,24.0"
