"""The checker of single objects: right histories pass, and planted wrong ones are found."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories.history import Answer, Data, History, Operation, Verb, Version
from tests.histories.linearizability import State, check_object, check_objects, take_effect


def data(**values: str) -> Data:
    return frozenset(values.items())


def version(number: int, uid: str = "u", **values: str) -> Version:
    return Version(number, uid, data(**values), b"%d" % number)


class Recorder:
    """Builds a history of one object step by step."""

    def __init__(self) -> None:
        self.history = History()

    def begin(self, verb: Verb, precondition: int | None = None, **values: str) -> Operation:
        key = "" if verb == "list" else "a"
        return self.history.invoke(Operation("c", verb, key, data(**values), precondition))

    def end(self, operation: Operation, status: int, found: Version | None = None) -> None:
        if operation.verb == "list":
            listed = {} if found is None else {"a": found}
            self.history.answer(operation, Answer(status, listed=listed, resource_version=99))
        else:
            self.history.answer(operation, Answer(status, found))

    def one(self, verb: Verb, status: int, found: Version | None = None, at: int | None = None, **values: str) -> None:
        """An operation that is over before the next begins."""
        self.end(self.begin(verb, at, **values), status, found)

    @property
    def problems(self) -> list[str]:
        return [violation.evidence for violation in check_object(self.history, "a")]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_answers_of_one_client_after_another_are_those_of_a_register(recorder: Recorder) -> None:
    recorder.one("get", 404)
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("create", 409, x="2")
    recorder.one("patch", 200, version(6, x="1", y="3"), y="3")
    recorder.one("update", 409, at=5, x="4")
    recorder.one("update", 200, version(9, x="5"), at=6, x="5")
    recorder.one("list", 200, version(9, x="5"))
    recorder.one("delete", 200)
    recorder.one("get", 404)
    assert recorder.problems == []


def test_concurrent_answers_may_be_in_any_order(recorder: Recorder) -> None:
    create, read = recorder.begin("create", x="1"), recorder.begin("get")
    second = recorder.begin("patch", y="2")
    recorder.end(read, 200, version(7, x="1", y="2"))
    recorder.end(create, 201, version(6, x="1"))
    recorder.end(second, 200, version(7, x="1", y="2"))
    assert recorder.problems == []


def test_a_read_that_is_older_than_an_answered_write_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("update", 200, version(6, x="2"), x="2")
    recorder.one("get", 200, version(5, x="1"))
    (problem,) = recorder.problems
    assert problem.startswith("a: c get a: 200 at 5, when the object was one of [State(data=frozenset({('x', '2')})")


def test_a_lost_update_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    first, second = recorder.begin("patch", y="2"), recorder.begin("patch", z="3")
    recorder.end(first, 200, version(6, x="1", y="2"))
    recorder.end(second, 200, version(7, x="1", z="3"))
    assert recorder.problems


def test_two_writes_with_the_same_precondition_are_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    first, second = recorder.begin("update", 5, x="2"), recorder.begin("update", 5, x="3")
    recorder.end(first, 200, version(6, x="2"))
    recorder.end(second, 200, version(7, x="3"))
    assert recorder.problems


def test_a_conflict_without_another_write_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("update", 409, at=5, x="2")
    assert recorder.problems


def test_a_resource_version_that_does_not_grow_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("update", 200, version(5, x="2"), x="2")
    assert recorder.problems


def test_a_created_object_with_the_uid_of_another_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("update", 200, version(6, "other", x="2"), x="2")
    assert recorder.problems


def test_a_write_without_an_answer_has_happened_or_not_by_the_crash(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.begin("update", x="2")
    recorder.begin("delete")
    recorder.history.crash()
    for found in (version(5, x="1"), version(6, x="2"), None):
        again = Recorder()
        again.history.steps = list(recorder.history.steps)
        again.one("get", 404 if found is None else 200, found)
        assert again.problems == []


def test_a_write_that_takes_effect_after_the_crash_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.begin("update", x="2")
    recorder.history.crash()
    recorder.one("get", 200, version(5, x="1"))
    recorder.one("get", 200, version(6, x="2"))
    assert recorder.problems


def test_an_answered_write_that_a_crash_loses_is_found(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("update", 200, version(6, x="2"), x="2")
    recorder.history.crash()
    recorder.one("list", 200, version(5, x="1"))
    assert recorder.problems


def test_a_write_that_no_client_sent_is_found(recorder: Recorder) -> None:
    recorder.one("get", 200, version(5, x="1"))
    assert recorder.problems


def test_a_list_whose_pages_are_gone_says_nothing(recorder: Recorder) -> None:
    recorder.one("create", 201, version(5, x="1"), x="1")
    recorder.one("list", 410)
    assert recorder.problems == []


def test_all_objects_of_a_history_are_checked() -> None:
    history = History()
    for key in ("a", "b"):
        operation = history.invoke(Operation("c", "get", key))
        history.answer(operation, Answer(200, version(5, x=key)))
    assert [violation.evidence[:2] for violation in check_objects(history)] == ["a:", "b:"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "update", "patch", "delete", "get"]), st.booleans()), min_size=1, max_size=4
)


@settings(max_examples=100)
@given(steps=STEPS, seed=st.integers(0, 2**32), is_wrong=st.booleans())
def test_it_agrees_with_trying_all_orders(steps: list[tuple[Verb, bool]], seed: int, is_wrong: bool) -> None:
    """Concurrent operations with the answers of a drawn order, or with two answers exchanged."""
    random = Random(seed)
    operations = [Operation("c", verb, "a", data(**{verb[0]: str(n)})) for n, (verb, _) in enumerate(steps)]
    answers = _answers(random.sample(operations, len(operations)))
    if is_wrong and len(operations) > 1:
        one, other = random.sample(operations, 2)
        answers[one], answers[other] = answers[other], answers[one]
    history = History()
    pending = list[Operation]()
    for operation, (_, overlaps) in zip(operations, steps, strict=True):
        pending.append(history.invoke(operation))
        while pending and not overlaps:
            ended = pending.pop(random.randrange(len(pending)))
            history.answer(ended, answers[ended])
    for ended in pending:
        history.answer(ended, answers[ended])
    assert (check_object(history, "a") == []) is any(map(_explains, permutations(operations)))


def _answers(order: list[Operation]) -> dict[Operation, Answer]:
    """The answers of a server that carries out operations in this order."""
    answers: dict[Operation, Answer] = {}
    stored: Version | None = None
    for number, operation in enumerate(order, 1):
        verb, before = operation.verb, stored
        if verb == "create":
            stored = stored or Version(number, "u", operation.data, b"")
        elif stored is not None and verb in ("update", "patch"):
            kept = dict(stored.data) if verb == "patch" else {}
            stored = Version(number, "u", frozenset((kept | dict(operation.data)).items()), b"")
        elif verb == "delete":
            stored = None
        if (before is None) is not (verb == "create"):
            answers[operation] = Answer(409 if verb == "create" else 404)
        else:
            answers[operation] = Answer(201 if verb == "create" else 200, stored)
    return answers


def _explains(order: tuple[Operation, ...]) -> bool:
    """Whether an order agrees with real time and all answers."""
    for index, operation in enumerate(order):
        if any(later.returned is not None and later.returned < operation.invoked for later in order[index + 1 :]):
            return False
    state: State | None = State()
    for operation in order:
        assert operation.answer is not None and state is not None
        state = take_effect(operation, operation.answer, state)
        if state is None:
            return False
    return True
