"""Fuzzing of one reader under the guidance of coverage, in this process: ``python -m … READER FOLDER SECONDS``.

FOLDER keeps the corpus, which the next run begins with, the current input and the findings: an exception that the
reader must not raise is written down once for each place where it is raised, and the run goes on. Needs atheris.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from hashlib import blake2b
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(
    include=["kubestow", "kubestow_contrib", "kubestow_devcluster", "kubestow_lab", "yaml", "csv"]
):
    from tests.security.fuzz.contained import CurrentInput, failure_of, limit_memory, origin
    from tests.security.fuzz.mutations import VALUES, changed, words_of
    from tests.security.fuzz.readers import READERS


def main(name: str, folder: Path, seconds: int) -> None:
    """Fuzz, and end the process with the statistics of libFuzzer on standard error."""
    logging.disable()
    warnings.simplefilter("ignore")
    reader = READERS[name]
    corpus, findings = folder / "corpus", folder / "findings"
    for directory in (corpus, findings):
        directory.mkdir(parents=True, exist_ok=True)
    seeds = [*reader.seeds(), b"x"]
    for seed in seeds:
        (corpus / blake2b(seed, digest_size=8).hexdigest()).write_bytes(seed)
    dictionary = folder / "dictionary"
    entries = ("".join(f"\\x{byte:02x}" for byte in value) for value in VALUES if len(value) < 60)
    dictionary.write_text("".join(f'"{entry}"\n' for entry in entries))
    current, known = CurrentInput(folder / "current"), set[str]()
    limit_memory()

    def read(content: bytes) -> None:
        current.set(content)
        error = failure_of(reader, content)
        if error is not None and (where := origin(error).partition(": ")[0]) not in known:
            known.add(where)
            path = findings / blake2b(where.encode(), digest_size=8).hexdigest()
            path.write_bytes(content)
            text = "".join(traceback.format_exception(error))
            path.with_suffix(".txt").write_text(f"{origin(error)}\n\n{text}", errors="backslashreplace")

    words = words_of(seeds)

    def mutate(content: bytes, longest: int, seed: int) -> bytes:
        """Half of the changes keep words whole, so that the input stays well-formed."""
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(content, longest))
        return changed(content, random.choice(seeds), words, random)[:longest]

    limits = [f"-max_total_time={seconds}", "-max_len=16384", "-rss_limit_mb=0", "-timeout=86400", "-len_control=20"]
    output = ["-print_final_stats=1", "-verbosity=1", f"-dict={dictionary}", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], "-seed=1", *limits, *output, str(corpus)], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
