"""Plots of an experiment for papers: bars with confidence intervals in a vector format; needs matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from kubestow.errors import InputError
from kubestow_lab.experiments.report import Comparison, ExperimentReport
from kubestow_lab.metrics.run_metrics import Unit

FORMATS = ("pdf", "svg")
#: The width of a column of a paper, and the height of one plot, in inches.
_WIDTH, _HEIGHT = 3.4, 1.9
#: The columns of a figure.
_COLUMNS = 2


def write_plots(report: ExperimentReport, path: Path) -> None:
    """Write all metrics of a report into one figure: a bar per policy with its interval, as PDF or SVG.

    The file has no date and no random identifiers, so the same numbers give the same bytes. Raises InputError without
    matplotlib, and for a file that cannot be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise InputError(path.suffix.removeprefix("."), "needs matplotlib, install kubestow-lab[experiment]") from None
    plots = [(each, name) for each in report.comparisons for name in dict.fromkeys(e.name for e in each.estimates)]
    columns = min(_COLUMNS, len(plots))
    rows = math.ceil(len(plots) / columns)
    # Text stays text, and fonts are embedded, as publishers demand.
    with matplotlib.rc_context(
        {"svg.hashsalt": "kubestow", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 8}
    ):
        figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for axis, (comparison, name) in zip(axes, plots, strict=False):
            _bars(axis, comparison, name)
        for axis in list(axes)[len(plots) :]:
            axis.set_visible(False)
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        form = path.suffix.removeprefix(".")
        try:
            figure.savefig(path, format=form, metadata=dates[form])
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None


def _bars(axis: Any, comparison: Comparison, name: str) -> None:
    found = [each for each in comparison.estimates if each.name == name]
    factor = 100 if found[0].metric.unit is Unit.SHARE else 1
    means = [factor * each.value.mean for each in found]
    errors = [
        [
            0.0 if math.isnan(bound) else factor * abs(each.value.mean - bound)
            for each in found
            for bound in (getattr(each.value, side),)
        ]
        for side in ("low", "high")
    ]
    axis.bar(
        [each.policy for each in found], means, yerr=errors, capsize=2, color="0.75", edgecolor="black", linewidth=0.6
    )
    unit = "%" if found[0].metric.unit is Unit.SHARE else found[0].metric.unit.value
    axis.set_ylabel(unit)
    axis.set_title(f"{comparison.title}: {name}")
