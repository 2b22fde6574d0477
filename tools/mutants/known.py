"""What is known of mutants before they are run: which are equivalent, and what became of others before."""

from __future__ import annotations

import ast
import json
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

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


class Verdicts:
    """What became of mutants before, which holds as long as neither their function nor the tests have changed.

    A kill needs the one test that killed; a survival needs all tests that were run. What else a mutant or a test calls
    may change without notice: start with another file to judge anew.
    """

    def __init__(self, file: Path) -> None:
        """Read what the file has, if it exists."""
        self._file = file
        self._definitions: dict[Path, Mapping[str, str]] = {}
        self._entries: dict[tuple[str, str], Mapping[str, str]] = {}
        self._killers: dict[tuple[str, str], Counter[str]] = {}
        for entry in map(json.loads, file.read_text(encoding="utf-8").splitlines() if file.exists() else ()):
            self._remember(entry)

    def of(self, mutant: Mutant, tests: Collection[str]) -> Outcome | None:
        """What became of a mutant, if that is known and these tests are all that would be tried."""
        entry = self._entries.get((mutant.name, mutant.digest))
        if entry is None:
            return None
        killer = entry["killer"]
        digest = self._digest([killer]) if killer else self._digest(tests)
        return Outcome(entry["outcome"]) if digest == entry["tests"] else None

    def killers(self, mutant: Mutant) -> list[str]:
        """The tests that killed other mutants of the same function, those with most kills first."""
        return [test for test, _ in self._killers.get((mutant.module, mutant.function), Counter()).most_common()]

    def add(self, mutant: Mutant, outcome: Outcome, killer: str, tests: Collection[str]) -> None:
        """Keep what became of a mutant, by which test of these if it was killed."""
        entry = {
            "mutant": mutant.name,
            "module": mutant.module,
            "function": mutant.function,
            "digest": mutant.digest,
            "outcome": outcome.value,
            "killer": killer,
            "tests": self._digest([killer] if killer else tests),
        }
        self._remember(entry)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _remember(self, entry: Mapping[str, str]) -> None:
        self._entries[entry["mutant"], entry["digest"]] = entry
        if killer := entry["killer"]:
            self._killers.setdefault((entry["module"], entry["function"]), Counter())[killer] += 1

    def _digest(self, tests: Iterable[str]) -> str:
        texts = sorted(f"{test} {self._definition(test)}" for test in tests)
        return sha256("\n".join(texts).encode()).hexdigest()[:16]

    def _definition(self, test: str) -> str:
        """A digest of the text of a test, or of its file if the test is not written there."""
        name, *rest = test.partition("[")[0].split("::")
        file = Path(name)
        if file not in self._definitions:
            self._definitions[file] = _definitions(file) if file.exists() else {}
        known = self._definitions[file]
        return known.get("::".join(rest)) or known.get("", "")


def _definitions(file: Path) -> Mapping[str, str]:
    """Digests of a file's functions and methods by name, and of the whole file as "" for what it does not define."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    body = ast.parse(text).body
    classes = [one for one in body if isinstance(one, ast.ClassDef)]
    found = {"": text}
    for prefix, nodes in [("", body), *((f"{one.name}::", one.body) for one in classes)]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min(one.lineno for one in (node, *node.decorator_list))
                found[prefix + node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return {name: sha256(part.encode()).hexdigest()[:16] for name, part in found.items()}
