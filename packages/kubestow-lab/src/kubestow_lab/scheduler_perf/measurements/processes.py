"""CPU time and memory of a process, read from /proc; on systems without it they are unknown."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessUsage"]


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """A process whose usage is read; ``pid`` 0 stands for none, with everything unknown."""

    pid: int

    @property
    def is_running(self) -> bool:
        """Whether there is such a process with readable usage."""
        return self.cpu_seconds() is not None

    def cpu_seconds(self) -> float | None:
        """CPU time so far, user and system, of all threads."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int | None:
        """Peak resident memory in bytes, since the start or the last successful reset."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), None)

    def reset_peak_memory(self) -> bool:
        """Begin a new peak; False if the system does not allow it, for example for a process of another user."""
        try:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        except OSError:
            return False
        return True
