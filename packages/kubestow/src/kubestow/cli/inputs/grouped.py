"""Options that a command gets as one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["grouped_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def grouped_options(
    name: str, group: type[Any], options: Sequence[Callable[[_Command], _Command]]
) -> Callable[[_Command], _Command]:
    """Add click options to a command, which gets their values as one ``group``, a dataclass, in its argument ``name``.

    The options have the names of the dataclass's fields.
    """

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def wrapper(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            return command(**{name: group(**values)}, **arguments)

        decorated: Any = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate
