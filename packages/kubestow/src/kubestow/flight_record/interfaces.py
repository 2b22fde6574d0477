"""Recording and replaying proxies of the scheduler's interfaces to its environment.

A proxy has the members of an interface (a protocol), and passes each use to a :class:`Boundary`: the recording, which
calls the implementation and records the result, or the replay, which takes the result from the record. The annotations
of the interface determine the kind of each member:

- an asynchronous method is a call, recorded with its arguments and its value or failure;
- a method or property that returns a number or a time is a clock reading;
- a method without a result is a notification, which is not recorded;
- a property that is itself an interface has its own proxy.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, partial
from typing import Any, Protocol, get_type_hints

from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, ExtenderError, LeaseLost, Unreachable
from kubestow.flight_record.entries import Failure
from kubestow.framework.handle import ResourceClaimWriter
from kubestow.framework.interface import Victims
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.extenders.stages import Extender, PodGone
from kubestow.scheduling.interfaces import Computing, ObjectReference, PodStatusPatch, Resource, Subscriber


class Boundary(Protocol):
    """Handles the uses of the environment by a scheduler; ``implementation`` is None in a replay or without one."""

    async def call(
        self,
        method: Method,
        implementation: Callable[..., Any] | None,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
    ) -> Any:
        """The value of a call. Raises its failure."""

    def notify(self, implementation: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        """A notification."""

    def read(self, kind: type[Any], implementation: Callable[[], Any] | None) -> Any:
        """A reading: a ``float``, a ``bool`` or a ``datetime``."""


# -- calls as data -----------------------------------------------------------------------------------------------------


def describe_resources(resources: Sequence[Resource]) -> list[Any]:
    """Resources by prefix, plural and kind."""
    return [(resource.prefix, resource.plural, resource.kind) for resource in resources]


def _describe_claim(claim: ResourceClaim) -> list[Any]:
    metadata = claim.metadata
    return [f"{metadata.namespace}/{metadata.name}", metadata.uid, metadata.resource_version]


#: What is recorded of an argument, by its annotation; of any other the value itself.
_DESCRIPTIONS: dict[Any, Callable[[Any], list[Any]]] = {
    Any: lambda _: [],  # the body of a plugin's own request, which may be confidential
    Callable[[], object]: lambda _: [],
    Mapping[str, Victims]: lambda by_node: [
        {name: [pod.uid for pod in victims.pods] for name, victims in by_node.items()}
    ],
    ObjectReference: lambda obj: [f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name, obj.uid],
    PodInfo: lambda pod: [pod.key, pod.uid],
    PodStatusPatch: lambda patch: [list(patch.conditions), patch.nominated_node_name],
    Resource: lambda _: [],
    ResourceClaim: _describe_claim,
    Sequence[Resource]: describe_resources,
    Sequence[str]: lambda names: [list(names)],
    Subscriber: lambda _: [],
}
#: The names of methods in records, where the methods of all interfaces are next to each other, if they differ.
_QUALIFIED: dict[tuple[type[Any], str], str] = {
    (Computing, "run"): "run_computation",
    (Extender, "bind"): "extender_bind",
    (Leadership, "acquire"): "acquire_lease",
    (Leadership, "hold"): "hold_lease",
    (Leadership, "release"): "release_lease",
    (ResourceClaimWriter, "create"): "create_claim",
    (ResourceClaimWriter, "delete"): "delete_claim",
    (ResourceClaimWriter, "patch"): "patch_claim",
    (ResourceClaimWriter, "read"): "read_claim",
    (ResourceClaimWriter, "report_extended"): "report_extended_claim",
}
#: Members that are used directly: timers are the event loop's, and settings do not change.
_UNRECORDED = frozenset({"settings", "sleep"})


@dataclass(frozen=True, slots=True)
class Method:
    """A method whose calls are recorded: its name in records, and the type of its value.

    ``parameters`` are their names, defaults and descriptions.
    """

    name: str
    value: Any
    parameters: tuple[tuple[str, Any, Callable[[Any], list[Any]]], ...]

    @classmethod
    def of(cls, interface: type[Any], name: str) -> Method:
        """The method of an interface."""
        function = inspect.getattr_static(interface, name)
        hints = get_type_hints(function)
        _, *parameters = inspect.signature(function).parameters.values()
        return cls(
            _QUALIFIED.get((interface, name), name),
            hints["return"],
            tuple(
                (each.name, each.default, _DESCRIPTIONS.get(hints[each.name], lambda value: [value]))
                for each in parameters
            ),
        )

    def describe(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The arguments of a call as they are recorded: what identifies the object, and what is written."""
        described: list[Any] = []
        for position, (name, default, describe) in enumerate(self.parameters):
            value = arguments[position] if position < len(arguments) else keywords.get(name, default)
            described += describe(value)
        return described


# -- the proxy ---------------------------------------------------------------------------------------------------------


def create_proxy(interface: type[Any], boundary: Boundary, implementation: Any = None) -> Any:
    """A proxy with the members of an interface; ``implementation`` has at least those that are not recorded."""
    return _proxy_class(interface)(boundary, implementation)  # type: ignore[arg-type]  # classes are hashable


class _Proxy:
    def __init__(self, boundary: Boundary, implementation: Any) -> None:
        self.boundary, self.implementation = boundary, implementation


@cache
def _proxy_class(interface: type[Any]) -> type[_Proxy]:
    members = {name: _member(interface, name) for name in dir(interface) if not name.startswith("_")}
    return type(f"{interface.__name__}Proxy", (_Proxy,), members)


def _member(interface: type[Any], name: str) -> Any:
    member = inspect.getattr_static(interface, name)
    if name in _UNRECORDED:
        return property(lambda proxy: getattr(proxy.implementation, name))
    if isinstance(member, property):
        kind = get_type_hints(member.fget)["return"]
        if getattr(kind, "_is_protocol", False):
            return cached_property(
                lambda proxy: create_proxy(kind, proxy.boundary, getattr(proxy.implementation, name, None))
            )
        return property(lambda proxy: proxy.boundary.read(kind, partial(getattr, proxy.implementation, name)))
    if inspect.iscoroutinefunction(member):
        method = Method.of(interface, name)
        return lambda proxy, *arguments, **keywords: proxy.boundary.call(
            method, getattr(proxy.implementation, name, None), arguments, keywords
        )
    kind = get_type_hints(member)["return"]
    if kind in (bool, float, datetime):
        return lambda proxy: proxy.boundary.read(kind, getattr(proxy.implementation, name, None))
    return lambda proxy, *arguments: proxy.boundary.notify(getattr(proxy.implementation, name, None), arguments)


# -- failures as data --------------------------------------------------------------------------------------------------

_KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (APIError, ExtenderError, LeaseLost, PodGone, Unreachable)
}
_CANCELLED = "CancelledError"

WITHHELD = Failure("ConfidentialAnswer", ["this answer may be confidential, so it was not recorded"])
"""In place of an answer that is not recorded; a replay differs from there on."""


def failure_of(error: BaseException) -> Failure:
    """An exception as data."""
    match error:
        case APIError():
            return Failure(APIError.__name__, [error.code, error.reason, error.message, error.retry_after])
        case Unreachable():
            return Failure(Unreachable.__name__, [error.server, error.problem])
        case LeaseLost():
            return Failure(LeaseLost.__name__, [error.lease, error.problem])
        case ExtenderError():
            kind = PodGone if isinstance(error, PodGone) else ExtenderError
            return Failure(kind.__name__, [error.extender, error.verb, error.problem])
        case asyncio.CancelledError():
            return Failure(_CANCELLED, [])
    return Failure(type(error).__name__, [str(error)])


def exception_of(failure: Failure) -> BaseException:
    """The exception that a failure stands for."""
    if failure.type == _CANCELLED:
        return asyncio.CancelledError()
    kind = _KNOWN.get(failure.type)
    if kind is None:
        # The scheduler shows the name of an unexpected exception's class in messages.
        unexpected: Exception = type(failure.type, (Exception,), {})(*failure.arguments)
        return unexpected
    if kind is APIError:
        *arguments, retry_after = failure.arguments
        return APIError(*arguments, retry_after=retry_after)
    return kind(*failure.arguments)
