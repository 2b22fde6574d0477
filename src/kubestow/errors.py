"""Every error kubestow raises on purpose, as one tree.

    KubestowError
    ├── InputError              a file or option given by a person cannot be used
    │   └── ConfigurationError  a KubeSchedulerConfiguration with one or more mistakes
    ├── InvalidObject           a Kubernetes object that cannot be read as what it claims to be
    │   ├── InvalidQuantity     … because of a resource quantity such as "1.5.2"
    │   └── InvalidSelector     … because of a label, field or node selector
    ├── PluginError             a plugin broke its contract: names the plugin and the extension point
    ├── ExtenderError           an extender failed, or answered with what the protocol does not allow
    ├── APIError                the API server answered with a failure Status
    └── Unreachable             the API server did not answer at all

An error's text is one line that names its subject (the object, file, plugin or server), the place in it, and what was
expected. A refusal ("no node fits") is not an error: it is data, see :mod:`kubestow.framework.status`.
"""

from __future__ import annotations

__all__ = [
    "APIError",
    "ConfigurationError",
    "ExtenderError",
    "InputError",
    "InvalidObject",
    "InvalidQuantity",
    "InvalidSelector",
    "KubestowError",
    "PluginError",
    "Unreachable",
]


class KubestowError(Exception):
    """The root of the tree; catching it catches everything kubestow raises on purpose."""


class InputError(KubestowError):
    """A file or option given by a person cannot be used.

    ``subject`` is the file or option, ``place`` the line or path inside it (may be empty), ``problem`` what is wrong
    and what was expected.
    """

    def __init__(self, subject: str, problem: str, *, place: str = "") -> None:
        self.subject, self.place, self.problem = subject, place, problem
        super().__init__(f"{subject}: {place}: {problem}" if place else f"{subject}: {problem}")


class ConfigurationError(InputError):
    """A scheduler configuration with one or more mistakes, all of them in ``problems`` as ``(path, text)``."""

    def __init__(self, subject: str, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__(subject, "; ".join(f"{path}: {text}" if path else text for path, text in problems))


class InvalidObject(KubestowError):
    """A Kubernetes object, or a part of one, that cannot be read.

    ``path`` is the field path inside the object (may be empty while it is not known yet).
    """

    def __init__(self, problem: str, *, path: str = "") -> None:
        self.problem, self.path = problem, path
        super().__init__(f"{path}: {problem}" if path else problem)


class InvalidQuantity(InvalidObject):
    """A resource quantity that does not parse."""


class InvalidSelector(InvalidObject):
    """A label, field or node selector that does not parse."""


class PluginError(KubestowError):
    """A plugin broke its contract at an extension point: raised, or answered with what the contract does not allow."""

    def __init__(self, plugin: str, extension_point: str, problem: str) -> None:
        self.plugin, self.extension_point, self.problem = plugin, extension_point, problem
        super().__init__(f"plugin {plugin!r} failed at {extension_point}: {problem}")


class ExtenderError(KubestowError):
    """An extender (named by its URL) failed at a verb; ``problem`` is what the pod's condition will say."""

    def __init__(self, extender: str, verb: str, problem: str) -> None:
        self.extender, self.verb, self.problem = extender, verb, problem
        super().__init__(f"extender {extender} failed at {verb}: {problem}")


class APIError(KubestowError):
    """The API server answered a request with a failure Status (``code``, ``reason`` and ``message`` are its own).

    ``in_doubt`` says whether what was asked may have been done all the same.
    """

    def __init__(self, code: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        self.in_doubt = code >= 500
        super().__init__(message or f"{code} {reason}")


class Unreachable(KubestowError):
    """The API server could not be reached or broke off in the middle of an answer.

    What was asked may have been done all the same: ``in_doubt``, as for an APIError.
    """

    in_doubt = True

    def __init__(self, server: str, problem: str) -> None:
        self.server, self.problem = server, problem
        super().__init__(f"{server}: {problem}")
