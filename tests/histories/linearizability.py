"""Whether the answers about one object are those of some sequential order of the requests.

An object is a register of Kubernetes: it is absent, or has content at a resourceVersion that every write increases.
An answered request takes effect at one moment between its start and its answer. One without an answer takes effect at
one moment until the process ends, or never.

The check is that of Wing and Gong as Lowe made it incremental ("Testing for linearizability", 2017): it walks through
the history with the set of all states that the object can be in, each with the pending requests that have taken effect
in it. When a request is answered, those that it cannot have taken effect in are dropped. If none is left, no order
explains the answer. A crash leaves no request pending, so a history of any length needs the memory of one run of the
process.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.histories.history import Answer, Crash, Data, History, Operation, Version, Violation

RULE = "single objects are linearizable"


class State(NamedTuple):
    """An object; ``data`` None means that it is absent.

    ``resource_version`` and ``uid`` are None until an answer shows them, as for a write without an answer.
    All resourceVersions from here on are larger than ``floor``.
    """

    data: Data | None = None
    resource_version: int | None = None
    uid: str | None = None
    floor: int = 0


def take_effect(operation: Operation, answer: Answer | None, state: State) -> State | None:
    """The state after an operation; None if it cannot have this answer in this state.

    Without an answer the operation fails where it would: the state is the same.
    """
    match operation.verb:
        case "get" | "list":
            return None if answer is None else _read(operation, answer, state)
        case "create" if state.data is None:
            return _write(operation, answer, state, operation.data, 201)
        case "create":
            return _fail(answer, state, 409)
    if state.data is None:
        return _fail(answer, state, 404)
    if _has_other_version(operation, state):
        return _fail(answer, state, 409)
    if answer is not None and answer.status == 409 and operation.precondition and state.resource_version is None:
        return state
    match operation.verb:
        case "update":
            return _write(operation, answer, state, operation.data, 200)
        case "patch":
            names = {name for name, _ in operation.data}
            kept = {(name, value) for name, value in state.data if name not in names}
            return _write(operation, answer, state, operation.data | kept, 200)
    if answer is not None and answer.status != 200:
        return None
    return State(floor=max(state.floor, operation.precondition or 0))


def _has_other_version(operation: Operation, state: State) -> bool:
    """Whether the precondition fails for certain."""
    if operation.precondition is None:
        return False
    if state.resource_version is None:
        return operation.precondition <= state.floor
    return operation.precondition != state.resource_version


def _fail(answer: Answer | None, state: State, status: int) -> State | None:
    return state if answer is None or answer.status == status else None


def _write(operation: Operation, answer: Answer | None, state: State, data: Data, status: int) -> State | None:
    floor = max(state.floor, operation.precondition or 0)
    if answer is None:
        return State(data, None, None if operation.verb == "create" else state.uid, floor)
    found = answer.version
    if answer.status != status or found is None or found.data != data or found.resource_version <= floor:
        return None
    if operation.verb != "create" and state.uid not in (None, found.uid):
        return None
    return State(data, found.resource_version, found.uid, found.resource_version)


def _read(operation: Operation, answer: Answer, state: State) -> State | None:
    if answer.status == 410:  # the other pages of a list are gone, which says nothing about the object
        return state
    found = answer.version if operation.verb == "get" else answer.listed.get(operation.key)
    if operation.verb == "list" and answer.resource_version < state.floor:
        return None
    if found is None or state.data is None:
        return state if found is None and state.data is None else None
    if found.data != state.data or state.uid not in (None, found.uid):
        return None
    if state.resource_version is None:
        return _with_version(state, found) if found.resource_version > state.floor else None
    return _with_version(state, found) if found.resource_version == state.resource_version else None


def _with_version(state: State, found: Version) -> State:
    return State(state.data, found.resource_version, found.uid, found.resource_version)


#: A state, and the pending operations that have taken effect in it.
Configuration = tuple[State, frozenset[Operation]]


class ObjectChecker:
    """The states that one object can be in, as the history goes on."""

    def __init__(self) -> None:
        self._configurations: set[Configuration] = {(State(), frozenset())}
        self._pending: list[Operation] = []

    def invoke(self, operation: Operation) -> None:
        self._pending.append(operation)

    def complete(self, operation: Operation) -> str:
        """The operation is answered; returns what is wrong with the answer, or nothing."""
        before, found = self._configurations, set[Configuration]()
        unexplored, seen = list(before), set(before)
        while unexplored:
            state, done = configuration = unexplored.pop()
            if operation in done:
                found.add((state, done - {operation}))
                continue
            for new in self._next(configuration):
                if new not in seen:
                    seen.add(new)
                    unexplored.append(new)
        self._pending.remove(operation)
        if found:
            self._configurations = found
            return ""
        states = "; ".join(sorted({str(state._replace(uid=None)) for state, _ in before}))
        others = "; ".join(str(one) for one in self._pending) or "nothing"
        return f"{operation}, when the object was one of [{states}], while there were pending: {others}"

    def crash(self) -> None:
        """Pending operations have taken effect, or never will."""
        seen = set(self._configurations)
        unexplored = list(seen)
        while unexplored:
            new = self._next(unexplored.pop()) - seen
            seen |= new
            unexplored.extend(new)
        self._configurations = {(state, frozenset()) for state, _ in seen}
        self._pending.clear()

    def _next(self, configuration: Configuration) -> set[Configuration]:
        """The configurations after one more of the pending operations has taken effect."""
        state, done = configuration
        found = set[Configuration]()
        for operation in self._pending:
            if operation not in done and (new := take_effect(operation, operation.answer, state)) is not None:
                found.add((new, done | {operation}))
        return found


def check_object(history: History, key: str) -> list[Violation]:
    """The first answer about an object that no order of the requests explains."""
    checker = ObjectChecker()
    projected = dict[Operation, Operation]()
    for position, step in enumerate(history.steps):
        if isinstance(step, Crash):
            checker.crash()
        elif step.verb == "list" or step.key == key:
            if step.invoked == position:
                # A list is a read of every object.
                projected[step] = operation = step if step.key else _read_of(step, key)
                checker.invoke(operation)
            elif problem := checker.complete(projected.pop(step)):
                return [Violation(RULE, f"{key}: {problem}")]
    return []


def _read_of(operation: Operation, key: str) -> Operation:
    return Operation(operation.client, "list", key, answer=operation.answer)


def check_objects(history: History) -> list[Violation]:
    """The objects of a history whose answers are not linearizable, each with the first such answer."""
    keys = sorted({operation.key for operation in history.operations if operation.key})
    return [violation for key in keys for violation in check_object(history, key)]
