"""The schedulers of a run as processes, each behind its own port of the proxy, started again when they lose the Lease.

As kube-scheduler, ``kubestow run`` ends with status 1 when it loses the Lease, and relies on being started again. Any
other end is a violation.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kubestow.process import stop_process

_COMMAND = (sys.executable, "-m", "kubestow", "run")
_LOST_LEASE = "leader election lost"
_STOP_TIMEOUT = 20.0
#: Seconds between two samples of memory.
SAMPLE_INTERVAL = 5.0


@dataclass
class SchedulerProcess:
    """One scheduler that is started again and again. ``resident`` has samples of memory, in bytes, by process."""

    name: str
    url: str
    directory: Path
    lost_leases: int = 0
    violations: list[str] = field(default_factory=list)
    resident: list[list[int]] = field(default_factory=list)

    async def run(self) -> None:
        """Keep the scheduler running until cancelled."""
        while True:
            log = self.directory / f"{self.name}-{len(self.resident)}.log"
            process = await self._start(log)
            try:
                status = await self._wait(process)
            finally:
                await stop_process(process, _STOP_TIMEOUT)
            last = log.read_text().strip().rpartition("\n")[2]
            if status == 1 and _LOST_LEASE in last:
                self.lost_leases += 1
            else:
                self.violations.append(f"no scheduler process dies: {self.name} ended with status {status}: {last}")
            await asyncio.sleep(1)

    async def _start(self, log: Path) -> asyncio.subprocess.Process:
        options = ("--secure-port=0", "--leader-elect=true", "--authentication-skip-lookup")
        with log.open("wb") as stream:
            return await asyncio.create_subprocess_exec(
                *_COMMAND, f"--master={self.url}", *options, stdout=stream, stderr=stream
            )

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        """The status with which the process ends; takes samples until then."""
        samples = list[int]()
        self.resident.append(samples)
        ended = asyncio.create_task(process.wait())
        try:
            while not ended.done():
                await asyncio.wait((ended,), timeout=SAMPLE_INTERVAL)
                if size := _resident_bytes(process.pid):
                    samples.append(size)
            return ended.result()
        finally:
            ended.cancel()


def _resident_bytes(pid: int) -> int:
    """The memory of a process, 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


@asynccontextmanager
async def running(schedulers: list[SchedulerProcess]) -> AsyncIterator[None]:
    """Run schedulers until the context ends, which one that cannot be started ends at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(scheduler.run()) for scheduler in schedulers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
