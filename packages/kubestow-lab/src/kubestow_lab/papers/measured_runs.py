"""The runs of a table, spread over processes; each has a file in the folder of the results, and never runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kubestow_lab.process_pool import process_pool


def measure_runs(
    runs: Mapping[str, tuple[Any, ...]],
    measure: Callable[..., Any],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """What ``measure`` returns for the arguments of each run, as JSON has it, by the names of the runs.

    A name has to identify all that the result depends on; what the folder has under it is not measured again.
    ``progress`` is called with the number of runs that have ended, and of all.
    """
    found: dict[str, Any] = {}
    for name, result in _finished(runs, measure, folder, processes):
        found[name] = result
        progress(len(found), len(runs))
    return found


def _finished(
    runs: Mapping[str, tuple[Any, ...]], measure: Callable[..., Any], folder: Path, processes: int | None
) -> Iterator[tuple[str, Any]]:
    """The runs with their results, in the order of their ends."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = {}
    for name, arguments in runs.items():
        path = folder / f"{name}.json"
        if path.exists():
            yield name, json.loads(path.read_bytes())
        else:
            missing[name] = arguments
    pool = process_pool(processes, preload=measure.__module__) if len(missing) > 1 else None
    with pool or nullcontext():
        if pool is None:
            ended: Iterator[tuple[str, Any]] = ((name, measure(*arguments)) for name, arguments in missing.items())
        else:
            futures = {pool.submit(measure, *arguments): name for name, arguments in missing.items()}
            ended = ((futures[future], future.result()) for future in as_completed(futures))
        for name, found in ended:
            partial = folder / f"{name}.partial"
            partial.write_text(json.dumps(found), encoding="utf-8")
            partial.replace(folder / f"{name}.json")
            yield name, found
