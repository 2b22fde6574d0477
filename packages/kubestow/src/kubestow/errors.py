"""The errors that kubestow raises across package boundaries, as one tree.

    KubestowError
    ├── InputError              a file, flag or option cannot be used
    │   └── ConfigurationError  a KubeSchedulerConfiguration is invalid; holds every problem found
    ├── InvalidObject           a Kubernetes object cannot be decoded
    │   ├── InvalidQuantity     … because of a resource quantity such as "1.5.2"
    │   └── InvalidSelector     … because of a label, field or node selector
    ├── PluginError             a plugin violated its contract at an extension point
    ├── ExtenderError           a call of an extender failed, or its response violates the protocol
    ├── APIError                the API server returned a failure Status
    ├── Unreachable             the API server could not be reached, or its response is incomplete or malformed
    └── LeaseLost               leader election was lost; the process must stop scheduling at once

The message of an error is one line that names the subject (object, file, plugin, extender or server), the position
inside it, and the problem. Packages derive further errors where only they raise them. A pod that fits no node is not an
error but a :class:`kubestow.framework.status.Status`.
"""

from __future__ import annotations


class KubestowError(Exception):
    """The root of the tree. The command line prints the message without a traceback."""


class InputError(KubestowError):
    """A file, flag or option cannot be used.

    ``subject`` is the file, flag or option, ``place`` the line or path inside it (empty if there is none), ``problem``
    what is wrong and what was expected.
    """

    def __init__(self, subject: str, problem: str, *, place: str = "") -> None:
        self.subject, self.place, self.problem = subject, place, problem
        super().__init__(f"{subject}: {place}: {problem}" if place else f"{subject}: {problem}")


class UnknownJob(InputError):
    """Queues do not have a job: they are not configured, or its pods are in none of them."""


class ConfigurationError(InputError):
    """A KubeSchedulerConfiguration is invalid; ``problems`` holds every problem found as ``(field path, text)``."""

    def __init__(self, subject: str, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__(subject, "; ".join(f"{path}: {text}" if path else text for path, text in problems))


class InvalidObject(KubestowError):
    """A Kubernetes object, or a part of one, cannot be decoded.

    ``path`` is the field path inside the object; it is empty if the code that decodes a value does not know it.
    """

    def __init__(self, problem: str, *, path: str = "") -> None:
        self.problem, self.path = problem, path
        super().__init__(f"{path}: {problem}" if path else problem)


class InvalidQuantity(InvalidObject):
    """A resource quantity does not parse."""


class InvalidSelector(InvalidObject):
    """A label, field or node selector does not parse."""


class PluginError(KubestowError):
    """A plugin raised an exception at an extension point, or returned a value that its contract does not allow.

    ``message`` replaces the text for what kube-scheduler reports as well, in its words.
    """

    def __init__(self, plugin: str, extension_point: str, problem: str, *, message: str = "") -> None:
        self.plugin, self.extension_point, self.problem = plugin, extension_point, problem
        super().__init__(message or f"plugin {plugin!r} failed at {extension_point}: {problem}")


class ExtenderError(KubestowError):
    """A call of an extender failed. ``extender`` is its URL, ``problem`` the text of the pod's condition."""

    def __init__(self, extender: str, verb: str, problem: str) -> None:
        self.extender, self.verb, self.problem = extender, verb, problem
        super().__init__(f"extender {extender} failed at {verb}: {problem}")


class APIError(KubestowError):
    """The API server returned a failure Status; ``code``, ``reason`` and ``message`` are its fields.

    ``retry_after`` is the delay in seconds that the server requested. ``in_doubt`` is True if the request may have
    taken effect nevertheless.
    """

    def __init__(self, code: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        self.in_doubt = code >= 500
        super().__init__(message or f"{code} {reason}")


class Unreachable(KubestowError):
    """The API server ``server`` could not be reached, or its response is incomplete or malformed.

    The request may have taken effect nevertheless, so ``in_doubt`` is True as for an :class:`APIError` of that kind.
    """

    in_doubt = True

    def __init__(self, server: str, problem: str) -> None:
        self.server, self.problem = server, problem
        super().__init__(f"{server}: {problem}")


class LeaseExpired(Unreachable):
    """A write was not sent, because the lease of this scheduler has expired and another may lead by now."""

    in_doubt = False

    def __init__(self) -> None:
        super().__init__("not sent", "the lease of this scheduler has expired")


class LeaseLost(KubestowError):
    """The lease ``lease`` (namespace/name) was not renewed in time or has another holder."""

    def __init__(self, lease: str, problem: str) -> None:
        self.lease, self.problem = lease, problem
        super().__init__(f"leader election lost: the lease {lease} {problem}")
