"""What is known of mutants before they are run: which are equivalent, and what became of others before."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tools.mutants.definitions import definitions
from tools.mutants.fork_server import Outcome
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


class Entry(msgspec.Struct, frozen=True):
    """What became of a mutant: a line of the file of verdicts."""

    mutant: str
    module: str
    function: str
    #: Of the function's text.
    digest: str
    outcome: str
    #: The test that killed it, or nothing.
    killer: str
    #: Digests of the killer, or of the tests that it has survived.
    tests: dict[str, str]


class Verdicts:
    """What became of mutants before, which holds as long as neither their function nor the tests have changed.

    A kill needs the one test that killed; a survival needs all tests to be tried, of which those that have passed are
    not run again. What else a mutant or a test calls may change without notice: start with another file to judge anew.
    """

    def __init__(self, file: Path) -> None:
        """Read what the file has, if it exists."""
        self._file = file
        self._definitions: dict[Path, Mapping[str, str]] = {}
        self._entries: dict[tuple[str, str], Entry] = {}
        self._killers: dict[tuple[str, str], Counter[str]] = {}
        for line in file.read_bytes().splitlines() if file.exists() else ():
            self._remember(msgspec.json.decode(line, type=Entry))

    def of(self, mutant: Mutant) -> Outcome | None:
        """What became of a mutant, if that is known: it may have survived some of the tests only."""
        entry = self._entries.get((mutant.name, mutant.digest))
        if entry is None or (entry.killer and entry.tests[entry.killer] != self._digest(entry.killer)):
            return None
        return Outcome(entry.outcome)

    def untried(self, mutant: Mutant, tests: Iterable[str]) -> list[str]:
        """Those of some tests that a mutant has not survived yet."""
        survived = self._survived(mutant)
        return [test for test in tests if survived.get(test) != self._digest(test)]

    def killers(self, mutant: Mutant) -> list[str]:
        """The tests that killed other mutants of the same function, those with most kills first."""
        return [test for test, _ in self._killers.get((mutant.module, mutant.function), Counter()).most_common()]

    def add(self, mutant: Mutant, outcome: Outcome, killer: str, tests: Iterable[str]) -> None:
        """Keep what became of a mutant: by which test it was killed, or which of these it has survived."""
        digests = {test: self._digest(test) for test in ([killer] if killer else tests)}
        if survived := {} if killer else self._survived(mutant):
            outcome, digests = Outcome.SURVIVED, survived | digests
        entry = Entry(mutant.name, mutant.module, mutant.function, mutant.digest, outcome.value, killer, digests)
        self._remember(entry)
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")

    def _survived(self, mutant: Mutant) -> dict[str, str]:
        entry = self._entries.get((mutant.name, mutant.digest))
        return {} if entry is None or entry.killer else entry.tests

    def _remember(self, entry: Entry) -> None:
        self._entries[entry.mutant, entry.digest] = entry
        if entry.killer:
            self._killers.setdefault((entry.module, entry.function), Counter())[entry.killer] += 1

    def _digest(self, test: str) -> str:
        """A digest of the text of a test, or of its file if the test is not written there."""
        name, *rest = test.partition("[")[0].split("::")
        file = Path(name)
        if file not in self._definitions:
            self._definitions[file] = definitions(file) if file.exists() else {}
        known = self._definitions[file]
        return known.get("::".join(rest)) or known.get("", "")
