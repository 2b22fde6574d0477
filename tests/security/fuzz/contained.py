"""The limits of a process that fuzzes, and what it leaves behind when it is ended by them."""

from __future__ import annotations

import mmap
import resource
import signal
import struct
import traceback
from pathlib import Path

from tests.security.fuzz.readers import Reader

#: Bytes of address space: the modules take half of it.
MEMORY = 3 << 29
#: CPU seconds that one input of a few kilobytes may take.
CPU_SECONDS = 20
#: Bytes of an input.
MAX_INPUT = 16384
_LENGTH = struct.Struct("<I")


def limit_memory() -> None:
    """Let allocations beyond :data:`MEMORY` fail."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class CurrentInput:
    """The input that a process is reading, in a file, so that it is known when a signal ends the process."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(_LENGTH.size + MAX_INPUT)
            self._memory = mmap.mmap(file.fileno(), 0)

    def set(self, content: bytes) -> None:
        """Keep an input of at most MAX_INPUT bytes."""
        self._memory[: _LENGTH.size] = _LENGTH.pack(len(content))
        self._memory[_LENGTH.size : _LENGTH.size + len(content)] = content

    @staticmethod
    def read(path: Path) -> bytes:
        """The last input of a process that has ended."""
        content = path.read_bytes()
        (length,) = _LENGTH.unpack_from(content)
        return content[_LENGTH.size : _LENGTH.size + length]


def failure_of(reader: Reader, content: bytes) -> BaseException | None:
    """The exception that a reader must not raise for this input; None if it accepts or rejects it.

    The kernel ends the process with SIGPROF if the reader takes longer than :data:`CPU_SECONDS`.
    """
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        reader.read(content)
    except reader.rejections:
        return None
    except (Exception, SystemExit) as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def origin(error: BaseException) -> str:
    """The type of an exception and where it was raised, which tells one defect from another."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "kubestow" in Path(frame.filename).name or "/kubestow" in frame.filename]
    frame = (ours or list(frames))[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno} ({frame.name}): {error}"[:400]
