"""What is known of mutants before they are run: which are equivalent, and which were killed before."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tools.mutants.mutations import Mutant

EQUIVALENT = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Mutants that no test can kill, since nothing but speed differs. Names no lines: these move."""

    module: str
    function: str
    #: The text of the line.
    source: str
    #: ``before → after``, each of them.
    changes: tuple[str, ...]
    reason: str

    def describes(self, mutant: Mutant) -> bool:
        """Whether a mutant is one of these."""
        same = (self.module, self.function, self.source) == (mutant.module, mutant.function, mutant.source)
        return same and mutant.change in self.changes


def equivalents(file: Path = EQUIVALENT) -> list[Equivalent]:
    """The mutants that a file declares equivalent. Raises TypeError if an entry lacks a key, or has another one."""
    entries = tomllib.loads(file.read_text(encoding="utf-8")).get("equivalent", [])
    return [Equivalent(**{**entry, "changes": tuple(entry["changes"])}) for entry in entries]


class Kills:
    """The mutants that were killed before, as long as neither their module nor the file of the test has changed."""

    def __init__(self, file: Path) -> None:
        """Read what the file has, if it exists."""
        self._file = file
        self._digests: dict[Path, str] = {}
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self._tests = {entry["mutant"]: (entry["test"], entry["digest"]) for entry in map(json.loads, lines)}

    def __contains__(self, mutant: Mutant) -> bool:
        test, digest = self._tests.get(self._name(mutant), ("", ""))
        return bool(test) and self._digest(_file_of(test)) == digest

    def add(self, mutant: Mutant, test: str) -> None:
        """Keep that a test killed a mutant."""
        entry = {"mutant": self._name(mutant), "test": test, "digest": self._digest(_file_of(test))}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _name(self, mutant: Mutant) -> str:
        return f"{self._digest(mutant.file)} {mutant.module} {mutant.steps} {mutant.variant}"

    def _digest(self, file: Path) -> str:
        if file not in self._digests:
            self._digests[file] = sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else ""
        return self._digests[file]


def _file_of(test: str) -> Path:
    return Path(test.partition("::")[0])
