"""A fixed number of mutations of the seeds of each reader: ``python -m tests.security.fuzz.bounded COUNT SEED FOLDER``.

Each reader runs in a process forked from this one, which has the modules loaded. Of a reader that fails, FOLDER/READER
has the input, and what is printed says why: an exception that the reader must not raise, or the signal.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path
from random import Random

from tests.security.fuzz.contained import CurrentInput, failure_of, limit_memory
from tests.security.fuzz.mutations import mutations
from tests.security.fuzz.readers import READERS, Reader


def fuzz(reader: Reader, count: int, seed: int, current: CurrentInput) -> BaseException | None:
    """Read ``count`` inputs, the seeds included. Returns the first exception that the reader must not raise."""
    seeds = reader.seeds()
    limit_memory()
    for content in itertools.islice(mutations(seeds, Random(seed)), count):
        current.set(content)
        if (error := failure_of(reader, content)) is not None:
            return error
    return None


def main(count: int, seed: int, folder: Path) -> int:
    """Fuzz all readers; slow ones read a quarter of ``count``. Returns the exit status: 1 if any fails."""
    logging.disable()
    warnings.simplefilter("ignore")
    failed = []
    for name, reader in READERS.items():
        child = os.fork()
        if child == 0:
            status = 1
            try:
                error = fuzz(reader, count // 4 if reader.is_slow else count, seed, CurrentInput(folder / name))
                status = int(error is not None)
                if error is not None:
                    traceback.print_exception(error, file=sys.stdout)
                    sys.stdout.flush()
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        if ended:
            status = os.waitstatus_to_exitcode(ended)
            failed.append(f"{name}: status {status} for {CurrentInput.read(folder / name)!r}")
    print(*failed, sep="\n")  # noqa: T201
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
