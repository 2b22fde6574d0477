"""The flight record of ``kubestow up`` and ``kubestow record``, and ``kubestow replay`` of it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import stat
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from core_tests.cli.ended_command import Ended
from core_tests.cli.live.test_live_commands import CONFIDENTIAL, attempted, create_pod, run, start
from core_tests.flight_record.records import long_record, small_record
from devcluster_tests.cli.up_process import up
from kubestow.cli import main

MOST_ALLOCATED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def content(path: Path) -> bytes:
    """The bytes of all frames of a record, decompressed where they are compressed."""
    data, offset, found = path.read_bytes(), 18, b""
    while offset < len(data):
        length = int.from_bytes(data[offset + 1 : offset + 5], "little")
        payload = data[offset + 9 : offset + 9 + length]
        found += zlib.decompress(payload) if data[offset] == 2 else payload
        offset += 9 + length
    return found


@pytest.mark.parametrize("own_process", ["true", "false"])
async def test_what_a_scheduler_did_is_replayed_and_decided_again(tmp_path: Path, own_process: str) -> None:
    folder, live, other = tmp_path / "flights", tmp_path / "record.bin", tmp_path / "other.yaml"
    other.write_text(MOST_ALLOCATED)
    async with up(tmp_path, "--flight-record", str(folder), "--scheduler-process", own_process) as cluster:
        await create_pod(cluster, "first", "1")
        await attempted(cluster, "first")
        timed = await start(cluster.kubeconfig, "record", "-o", str(tmp_path / "timed.bin"), "--duration", "1s")
        _, counted = await timed.communicate()
        assert (timed.returncode, b"states of objects" in counted) == (0, True)
        recording = await start(cluster.kubeconfig, "record", "-o", str(live))
        while not live.exists():
            assert recording.returncode is None
            await asyncio.sleep(0.05)
        for number in range(5):
            await create_pod(cluster, f"pod-{number}", "500m")
            await attempted(cluster, f"pod-{number}")
        await create_pod(cluster, "large", "1000")
        await attempted(cluster, "large")
        recording.send_signal(signal.SIGINT)
        assert await recording.wait() == 0
    [record] = folder.iterdir()
    for path in (record, live):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        recorded = content(path)
        assert b"pod-3" in recorded
        assert CONFIDENTIAL.encode() not in recorded
        assert b"last-applied-configuration" not in recorded

    exact = await replay(tmp_path, folder, "-o", "json")
    [document] = json.loads(exact.out)["records"]
    assert (exact.status, document["identical"], document["decisions"] >= 7) == (0, True, True)
    table = await replay(tmp_path, record)
    assert table.status == 0
    assert "decisions" in table.out

    again = await replay(tmp_path, record, "--config", str(other), "-o", "yaml")
    assert again.status == 0
    assert "moved:" in again.out
    compared = await replay(tmp_path, live, "-o", "json")
    [document] = json.loads(compared.out)["records"]
    assert compared.status == 0
    assert document["pods"] >= 1


async def replay(directory: Path, record: Path, *options: str) -> Ended:
    return await run(directory / "none", "replay", str(record), *options)


async def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    foreign, empty = tmp_path / "foreign.bin", tmp_path / "empty"
    foreign.write_bytes(b"\x7fELF" * 100)
    empty.mkdir()
    for record, expected in (
        (foreign, f"kubestow: {foreign}: offset 0: not a flight record: expected it to begin with KUBESTOW-FLIGHT"),
        (empty, f"kubestow: {empty}: contains no flight record"),
        (tmp_path / "none.bin", f"kubestow: {tmp_path / 'none.bin'}: cannot be read: No such file or directory"),
    ):
        found = await replay(tmp_path, record)
        assert (found.status, found.err.strip()) == (1, expected)


async def test_a_record_does_not_decide_what_code_is_imported(tmp_path: Path) -> None:
    plugin, record, imported = tmp_path / "mine.py", tmp_path / "record.bin", tmp_path / "imported"
    plugin.write_text(
        "from pathlib import Path\nfrom kubestow.framework.interface import ScorePlugin\n"
        f"Path({str(imported)!r}).touch()\n\n\nclass Mine(ScorePlugin):\n    name = 'Mine'\n    score = None\n"
    )
    sink = await asyncio.to_thread(small_record)  # it runs an event loop of its own
    header = structs.replace(sink.headers[0], plugins=[f"{plugin}:Mine"])
    record.write_bytes(replace(sink, headers=[header]).content())
    for options in ((), ("--config", "none.yaml")):
        refused = await replay(tmp_path, record, *options)
        assert refused.status == 1
        assert f"{record}: recorded with a plugin that is not installed" in refused.err
        assert f"give --plugin {plugin}:Mine" in refused.err
        assert not imported.exists()
    accepted = await replay(tmp_path, record, "--plugin", f"{plugin}:Mine")
    assert (accepted.status, imported.exists()) == (0, True)


async def test_a_record_that_cannot_be_written_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    running = await start(
        tmp_path / "none", "run", "--master=http://127.0.0.1:1", f"--flight-record={file / 'flights'}"
    )
    _, errors = await running.communicate()
    last = errors.decode().splitlines()[-1]
    assert (running.returncode, last) == (1, f"kubestow: {file / 'flights'}: cannot be created: Not a directory")
    found = await run(tmp_path / "none", "record", "-o", str(file))
    assert (found.status, found.err.strip()) == (1, f"kubestow: {file}: already exists")


def test_a_run_in_several_files_is_replayed_file_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kubestow"), "setLevel", lambda level: None)  # it is for the whole process
    long_record(tmp_path, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(tmp_path), "-o", "json"])
    printed = capsys.readouterr()
    assert ended.value.code == 0
    first, *others = json.loads(printed.out)["records"]
    assert first["identical"]
    assert first["nextFile"] == Path(others[0]["file"]).name
    assert all(record["newlyPending"] == [] for record in others)
    assert printed.err.count("decided again from the cluster at the beginning of this file") == len(others) > 0
