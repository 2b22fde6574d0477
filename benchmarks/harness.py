"""The harness: it lists the scenarios, reads their options, runs them, and prints what they measure.

    python -m benchmarks
    python -m benchmarks core --nodes 1000 --repeat 3
    python -m benchmarks core --against ../other-checkout --repeat 5

A scenario is a function that yields rows: the case that was measured, and its figures by unit. Its keyword arguments
are its options. With ``--repeat`` the figures are medians. With ``--against`` the scenario runs in turn with the code
of another checkout and with that of this one, each time in a process of its own; printed are the medians of the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args, get_origin

from tools.performance.checkouts import ROOT, environment_of

Row = tuple[str, dict[str, Any]]
"""A case, and its figures by unit; texts are results without a unit."""

Rows = Iterator[Row]

#: The scenarios by module, in the order of the list.
_SCENARIOS = {
    "decisions": ("core", "passes", "topology", "catch-up"),
    "preemption": ("preemption", "quotas"),
    "queueing": ("queueing", "events"),
    "resources": ("volumes", "devices"),
    "running": ("load-aware", "flight-record", "tracing", "extender"),
    "shadow": ("shadow",),
    "shadow_end_to_end": ("shadow-end-to-end",),
    "growth": ("scaling", "memory", "churn", "soak"),
    "partitions": ("partitions",),
    "client": ("client",),
    "end_to_end": ("end-to-end", "shared-claim", "failover", "startup"),
    "dashboard": ("dashboard",),
    "devcluster": ("apiserver", "controllers", "up"),
    "job_queues": ("job-queues", "queue-planning", "without-queues"),
    "offline": ("explain", "gangs", "gang-placements", "flow", "deschedule", "fgd"),
    "simulation": ("simulation", "drivers"),
}


def main() -> None:
    """Run a scenario, or list them."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        for name in (name for names in _SCENARIOS.values() for name in names):
            print(f"  {name:16}{inspect.getdoc(_function(name)).partition(chr(10))[0]}")
        return
    name, *arguments = sys.argv[1:]
    function = _function(name)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--repeat", type=int, default=1, help="runs, of which the medians are printed")
    shared.add_argument("--json", action="store_true")
    shared.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, to be measured in turn")
    arguments, flags = _split(arguments)
    ours, rest = shared.parse_known_args(arguments)
    options = _options(name, function, rest, shared)
    if flags:
        options["flags"] = flags
    if ours.against is not None:
        rows = _compared([name, *rest, *(["--", *flags] if flags else [])], ours.against, ours.repeat)
    elif ours.repeat > 1:
        rows = _medians([list(_rows(function, options)) for _ in range(ours.repeat)])
    else:
        rows = _rows(function, options)
    if ours.json:
        print(json.dumps({"scenario": name, "rows": [{"case": case, **figures} for case, figures in rows]}, indent=1))
        return
    for case, figures in rows:
        print(f"{case:43} " + "; ".join(_figure(value, unit) for unit, value in figures.items()), flush=True)


def chosen(known: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """The cases to run: those given, or all."""
    if unknown := set(names) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(known)}")
    return names or list(known)


def _function(name: str) -> Callable[..., Any]:
    for module, names in _SCENARIOS.items():
        if name in names:
            return getattr(importlib.import_module(f"benchmarks.{module}"), name.replace("-", "_"))
    sys.exit(f"no scenario {name}; python -m benchmarks lists them")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What comes before and after ``--``."""
    if "--" not in arguments:
        return arguments, []
    position = arguments.index("--")
    return arguments[:position], arguments[position + 1 :]


def _options(
    name: str, function: Callable[..., Any], arguments: list[str], shared: argparse.ArgumentParser
) -> dict[str, Any]:
    """The options of a scenario, by its signature; the parts of a sequence are separated by commas."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=inspect.getdoc(function),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
    )
    for option in inspect.signature(function, eval_str=True).parameters.values():
        if option.name == "flags":
            continue  # of the measured program, after --
        flag, kind, settings = f"--{option.name.replace('_', '-')}", option.annotation, {}
        if kind is bool:
            parser.add_argument(flag, action="store_true")
            continue
        if get_origin(kind) is Sequence:
            [element] = get_args(kind)
            settings["type"] = lambda text, element=element: [element(part) for part in text.split(",")]
        elif get_origin(kind) is Literal:
            settings["choices"] = get_args(kind)
        else:
            settings["type"] = (get_args(kind) or (kind,))[0]  # of ``Path | None``, the path
        is_required = option.default is inspect.Parameter.empty
        default = None if is_required else option.default
        parser.add_argument(flag, default=default, required=is_required, help="default: %(default)s", **settings)
    options = vars(parser.parse_args(arguments))
    return {key: value for key, value in options.items() if key not in ("repeat", "json", "against")}


def _rows(function: Callable[..., Any], options: dict[str, Any]) -> Rows:
    """The rows of a run, as they come."""
    if not inspect.isasyncgenfunction(function):
        yield from function(**options)
        return
    rows = function(**options)
    with asyncio.Runner() as runner:
        while (row := runner.run(anext(rows, None))) is not None:
            yield row


def _medians(runs: Sequence[Sequence[Row]]) -> Rows:
    """The figures of several runs, each as a median; texts are those of the last run."""
    for rows in zip(*runs, strict=True):
        case, last = rows[-1]
        yield (
            case,
            {
                unit: value if isinstance(value, str) else median(figures[unit] for _, figures in rows)
                for unit, value in last.items()
            },
        )


def _compared(command: list[str], checkout: Path, pairs: int) -> Rows:
    """The figures of this checkout as multiples of those of another one."""
    ratios = []
    for number in range(pairs):
        measured = {}
        for path in (checkout, ROOT) if number % 2 == 0 else (ROOT, checkout):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks", *command[:1], "--json", *command[1:]],
                cwd=ROOT,
                env=environment_of(path.resolve()),
                stdout=subprocess.PIPE,
                check=True,
            )
            measured[path] = json.loads(done.stdout)["rows"]
        ratios.append([_ratio(before, now) for before, now in zip(measured[checkout], measured[ROOT], strict=True)])
    return _medians(ratios)


def _ratio(before: dict[str, Any], now: dict[str, Any]) -> Row:
    figures = {
        f"times the {unit}": now[unit] / value
        for unit, value in before.items()
        if isinstance(value, int | float) and value and unit in now
    }
    return now["case"], figures


def _figure(value: Any, unit: str) -> str:
    if isinstance(value, str):
        return f"{unit} {value}"
    digits = 0 if isinstance(value, int) or abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    return f"{value:,.{digits}f} {unit}"
