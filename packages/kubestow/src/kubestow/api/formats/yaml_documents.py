"""Reading YAML as Kubernetes does, within limits, where speed matters more than the positions of fields.

PyYAML composes a tree by recursion in C, which ends the process with a segmentation fault on deep input, expands
aliases without a bound, and reads numbers in quadratic time. So each text is parsed twice: first into events, one after
the other, which count depth, expansion and digits; and only a text within the limits is composed. Aliases that refer to
the node around them are rejected, as in Go's parser.

Configurations are parsed by :mod:`kubestow.config.document`, which keeps the line of every field; it checks its texts
here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import yaml

from kubestow.errors import InputError

#: Levels of nesting. The deepest objects of Kubernetes, schemas of custom resources, have about 100.
MAX_DEPTH = 200
#: Characters that all aliases of a text may stand for; each node counts one more.
MAX_EXPANSION = 32_000_000
#: Characters of a number, as of a quantity.
MAX_DIGITS = 256

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
#: What LibYAML says from version 0.2.6 on, which has a limit of its own and reads ahead of its events.
_PARSER_TOO_DEEP = "exceeded maximum nesting depth"

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads YAML as Kubernetes does: timestamps are strings."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class YAMLDocument(NamedTuple):
    """Plain data, with the tree of nodes it was made of, whose marks are positions."""

    data: Any
    node: yaml.Node

    @property
    def line(self) -> int:
        """The line of the first node; lines count from 1."""
        return int(self.node.start_mark.line) + 1


def load_yaml(content: bytes | str, subject: str) -> Any:
    """The data of a text with one document; None for an empty one. Raises InputError like :func:`yaml_documents`."""
    documents = list(yaml_documents(content, subject))
    if len(documents) > 1:
        raise InputError(subject, "expected a single YAML document", place=f"line {documents[1].line}")
    return documents[0].data if documents else None


def yaml_documents(content: bytes | str, subject: str, *, max_expansion: int = MAX_EXPANSION) -> Iterator[YAMLDocument]:
    """The documents of a text. Raises InputError with the line of what is invalid or exceeds a limit.

    ``subject`` names the text in errors. ``max_expansion`` are the characters that aliases may stand for.
    """
    try:
        _check(content, subject, max_expansion)
        loader = _Loader(content)
        try:
            while loader.check_node():
                node = loader.get_node()
                try:
                    data = loader.construct_document(node)
                # Scalars with an explicit tag, such as !!int "", fail in many ways.
                except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
                    problem = "invalid YAML: a value does not fit its tag, or is no number"
                    place = f"line {node.start_mark.line + 1}"
                    raise InputError(subject, f"{problem} ({_text(error)})", place=place) from None
                yield YAMLDocument(data, node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(error, content, subject) from None


def check_yaml(content: bytes | str, subject: str) -> None:
    """Check the limits of a text that another parser reads. Raises InputError; syntax errors are left to the parser."""
    try:
        _check(content, subject, MAX_EXPANSION)
    except (yaml.YAMLError, UnicodeDecodeError):
        return


def _check(content: bytes | str, subject: str, max_expansion: int) -> None:
    """Check depth, aliases and numbers without recursion. Raises InputError, yaml.YAMLError and UnicodeDecodeError."""
    sizes: dict[str, int] = {}  # of complete nodes by anchor
    anchors: list[str | None] = []  # of the collections around the current node
    around: list[int] = [0]  # the sizes so far of these collections, after that of the document
    expanded = 0
    # An encoding error of a text is raised by the constructor.
    loader = _Loader(content)
    try:
        while loader.check_event():
            event = loader.get_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                size = len(event.value) + 1
                if size > MAX_DIGITS + 1 and _is_number(loader, event):
                    raise _beyond(
                        subject, event.start_mark, f"a number of {size - 1:,} characters, expected at most {MAX_DIGITS}"
                    )
            elif kind is yaml.AliasEvent:
                if event.anchor in anchors:
                    raise _beyond(subject, event.start_mark, f"anchor {event.anchor[:64]} contains itself")
                size = sizes.get(event.anchor, 0)
                expanded += size
                if expanded > max_expansion:
                    problem = f"aliases stand for more than {max_expansion:,} characters"
                    raise _beyond(subject, event.start_mark, problem)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                anchors.append(event.anchor)
                around.append(1)
                if len(anchors) > MAX_DEPTH:
                    raise _beyond(subject, event.start_mark, _TOO_DEEP)
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                anchor, size = anchors.pop(), around.pop()
                if anchor is not None:
                    sizes[anchor] = size
                around[-1] += size
                continue
            else:
                sizes.clear()  # anchors end with their document
                continue
            around[-1] += size
            if kind is yaml.ScalarEvent and event.anchor is not None:
                sizes[event.anchor] = size
    except yaml.MarkedYAMLError as error:
        if error.problem != _PARSER_TOO_DEEP or error.problem_mark is None:
            raise
        raise _beyond(subject, error.problem_mark, _TOO_DEEP) from None
    finally:
        loader.dispose()


def _is_number(loader: Any, event: yaml.ScalarEvent) -> bool:
    tag = event.tag
    if tag is None or tag == "!":
        tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)
    return tag in _NUMBERS


def _beyond(subject: str, mark: yaml.Mark, problem: str) -> InputError:
    return InputError(subject, f"invalid YAML: {problem}", place=f"line {mark.line + 1}")


def _invalid(error: Exception, content: bytes | str, subject: str) -> InputError:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}" if mark is not None else ""
        return InputError(subject, f"invalid YAML: {error.problem or error.context}", place=place)
    if isinstance(content, bytes):
        try:
            content.decode()
        except UnicodeDecodeError as invalid:
            line = content.count(b"\n", 0, invalid.start) + 1
            return InputError(subject, "not UTF-8 text", place=f"line {line}")
    return InputError(subject, f"invalid YAML: {_text(error)}")


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
