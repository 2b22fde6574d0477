"""What mutants change, and what they leave as it is."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from tools.mutants.__main__ import TESTS, mutants_of
from tools.mutants.known import equivalents
from tools.mutants.mutations import Mutant, mutants, mutated


def _mutants(tmp_path: Path, source: str) -> list[Mutant]:
    file = tmp_path / "module.py"
    file.write_text(dedent(source))
    return list(mutants("module", file))


def _changes(tmp_path: Path, source: str) -> list[str]:
    return [mutant.change for mutant in _mutants(tmp_path, source)]


def test_a_condition_is_forced_and_its_parts_are_changed(tmp_path: Path) -> None:
    source = """
        def fits(requested, free):
            if not free or requested <= free - 2:
                return "fits"
        """
    assert _changes(tmp_path, source) == [
        "not free or requested <= free - 2 → False",
        "not free or requested <= free - 2 → True",
        "not free or requested <= free - 2 → not free and requested <= free - 2",
        "not free → free",
        "requested <= free - 2 → requested < free - 2",
        "free - 2 → free + 2",
        "2 → 3",
        "'fits' → ''",
    ]


def test_statements_are_left_out_and_loops_never_run(tmp_path: Path) -> None:
    source = """
        class Queue:
            def take(self, pods):
                for pod in pods:
                    self.forget(pod)
                    self.last = pod
                    self.taken += pod.count
                    if pod.is_last:
                        break
                return self.taken
        """
    changes = _changes(tmp_path, source)
    assert [change for change in changes if " → pass" in change] == [
        "self.forget(pod) → pass",
        "self.last = pod → pass",
        "self.taken += pod.count → pass",
    ]
    others = {"pods → ()", "break → continue", "return self.taken → return None"}
    assert others | {"self.taken += pod.count → self.taken -= pod.count"} <= set(changes)


def test_what_decides_nothing_is_not_changed(tmp_path: Path) -> None:
    source = '''
        LIMIT = 1 + 1

        @retry(3)
        def start(pod, count: int = 1) -> "Pod":
            """Starts it."""
            node: "Node"
            assert pod.is_bound
            _log.info("pod %s starts", pod)
            pairs(zip(pod, pod, strict=True))
            raise ValueError(f"pod {pod} has not started after {1 + 1} s")

        class Pod:
            limit = 2

            def __repr__(self):
                return "pod" + self.name
        '''
    removed = ["pairs(zip(pod, pod, strict=True)) → pass"]
    assert [change for change in _changes(tmp_path, source) if not change.startswith("raise")] == removed


def test_a_changed_function_has_the_same_variables(tmp_path: Path) -> None:
    source = """
        class Queue(Base):
            def add(self, pod):
                super().add(pod)
                limit = 1
                def few():
                    if seen(pod):
                        return limit
                return few
        """
    found = _mutants(tmp_path, source)
    assert {"super().add(pod) → pass", "seen(pod) → False", "return limit → return None"} <= {
        one.change for one in found
    }
    original = compile(dedent(source), "module.py", "exec")
    for mutant in found:
        assert _variables(mutated(mutant)) == _variables(original)


def _variables(code: object) -> object:
    """The variables of all functions in a code object."""
    constants = getattr(code, "co_consts", ())
    own = (getattr(code, "co_freevars", ()), getattr(code, "co_varnames", ()), getattr(code, "co_cellvars", ()))
    return own, [_variables(one) for one in constants if hasattr(one, "co_consts")]


def test_every_declared_equivalent_is_a_mutant_of_today() -> None:
    declared = equivalents()
    of_module = {name: list(mutants_of(name.removeprefix("kubestow."))) for name in {one.module for one in declared}}
    for one in declared:
        described = {mutant.change for mutant in of_module[one.module] if one.describes(mutant)}
        assert described == set(one.changes), f"{one.module}.{one.function}: {one.source}"
        assert one.reason


def test_the_folders_of_tests_exist() -> None:
    assert all(Path(path).exists() for path in TESTS)
