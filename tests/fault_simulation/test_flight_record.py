"""Every recorded run of the fault simulation replays identically."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.flight_record.exact_replay import ReplayResult, replay
from kubestow.flight_record.segment import Segment
from kubestow_lab.fault_simulation.recording import Recording, ReplayedFaults
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import ProvisioningPlugin, ReservationLedger, faulty_plugin
from kubestow_lab.fault_simulation.simulation import simulate


def replayed(recording: Recording, path: Path) -> ReplayResult:
    path.write_bytes(recording.content)
    plugins = faulty_plugin(ReplayedFaults(recording.draws), ReservationLedger()), ProvisioningPlugin
    return replay(Segment(path), {plugin.name: plugin for plugin in plugins} if recording.faulty_plugin else {})


@pytest.mark.parametrize("seed", range(1, 26))
def test_a_recorded_run_replays_identically(seed: int, tmp_path: Path) -> None:
    recordings: list[Recording] = []
    assert simulate(seed, recordings=recordings).violations == []  # another run than that of the seed without a record
    results = [replayed(recording, tmp_path / f"{number}.flight") for number, recording in enumerate(recordings)]
    assert [result.divergence for result in results] == [None] * len(results)
    assert sum(result.decisions for result in results) > 0
