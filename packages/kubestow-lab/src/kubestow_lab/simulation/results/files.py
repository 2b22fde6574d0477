"""Simulation results as files: one per table, CSV or Parquet."""

from __future__ import annotations

import csv
from pathlib import Path

from kubestow.errors import InputError
from kubestow_lab.simulation.results.result import TABLES, SimulationResult

__all__ = ["write_csv", "write_parquet"]


def write_csv(result: SimulationResult, folder: Path) -> list[Path]:
    """Write the tables as CSV files into a folder, which is created. Raises InputError if that fails."""
    written = []
    for table in TABLES:
        columns, path = result.columns(table), _path(folder, table, ".csv")
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None
        written.append(path)
    return written


def write_parquet(result: SimulationResult, folder: Path) -> list[Path]:
    """Write the tables as Parquet files into a folder; needs polars. Raises InputError without it."""
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise InputError("parquet", "needs polars, install kubestow-lab[polars]") from None
    written = []
    for table in TABLES:
        path = _path(folder, table, ".parquet")
        pl.DataFrame(result.columns(table), infer_schema_length=None).write_parquet(path)
        written.append(path)
    return written


def _path(folder: Path, table: str, suffix: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be created: {error.strerror}") from None
    return folder / f"{table}{suffix}"
