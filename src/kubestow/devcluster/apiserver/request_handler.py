"""From a request to its answer: finds the kind and the verb, and turns every refusal into a Status.

This is the whole API without a network: give it a :class:`Request`, get an :class:`Answer` or a :class:`Stream`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kubestow.devcluster.apiserver import health, statuses
from kubestow.devcluster.apiserver.authentication import Authenticator
from kubestow.devcluster.apiserver.discovery import discovery
from kubestow.devcluster.apiserver.discovery.openapi import OpenAPI
from kubestow.devcluster.apiserver.metrics import Metrics
from kubestow.devcluster.apiserver.paths import Target, parse
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.requests import Answer, Request, Stream
from kubestow.devcluster.apiserver.resources import Kind
from kubestow.devcluster.apiserver.verbs import (
    Call,
    binding,
    eviction,
    logs,
    reading,
    reviews,
    scale,
    watching,
    writing,
)

__all__ = ["API"]

_log = logging.getLogger(__name__)

Result = Answer | Stream
Verb = Callable[[Call], Result | Awaitable[Result]]

_OBJECT: dict[str, tuple[str, Verb]] = {
    "GET": ("get", reading.get),
    "PUT": ("update", writing.replace),
    "PATCH": ("patch", writing.patch),
    "DELETE": ("delete", writing.delete),
}
_COLLECTION: dict[str, tuple[str, Verb]] = {
    "GET": ("list", reading.list_),
    "POST": ("create", writing.create),
    "DELETE": ("deletecollection", writing.delete_collection),
}
_CONNECT: dict[str, Verb] = {"GET": logs.reach_container, "POST": logs.reach_container}
_WHOLE_OBJECT: dict[str, Verb] = {"GET": reading.get, "PUT": writing.replace, "PATCH": writing.patch}
_SCALE: dict[str, Verb] = {"GET": scale.get_scale, "PUT": scale.replace_scale, "PATCH": scale.patch_scale}
#: (resource, subresource) -> method -> verb, for the subresources that only one resource has.
_SUBRESOURCES: dict[tuple[str, str], dict[str, Verb]] = {
    ("pods", "binding"): {"POST": binding.create_pod_binding},
    ("pods", "eviction"): {"POST": eviction.create_eviction},
    ("pods", "ephemeralcontainers"): _WHOLE_OBJECT,
    ("pods", "resize"): _WHOLE_OBJECT,
    ("pods", "log"): {"GET": logs.get_log},
    ("pods", "attach"): _CONNECT,
    ("pods", "exec"): _CONNECT,
    ("pods", "portforward"): _CONNECT,
    ("namespaces", "finalize"): {"PUT": writing.finalize},
}
_QUESTIONS: dict[str, Verb] = {
    "bindings": binding.create_binding,
    "selfsubjectreviews.authentication.k8s.io": reviews.who_am_i,
    "selfsubjectaccessreviews.authorization.k8s.io": reviews.may_i,
    "selfsubjectrulesreviews.authorization.k8s.io": reviews.what_may_i,
    "subjectaccessreviews.authorization.k8s.io": reviews.may_they,
    "localsubjectaccessreviews.authorization.k8s.io": reviews.may_they,
}


class API:
    """The API over one registry. ``authenticator`` is asked in token reviews."""

    def __init__(self, registry: Registry, authenticator: Authenticator | None = None) -> None:
        self._registry = registry
        whose_token = partial(reviews.whose_token, authenticator=authenticator or Authenticator())
        self._questions = _QUESTIONS | {"tokenreviews.authentication.k8s.io": whose_token}
        self._lines = watching.LineCache()
        self._openapi = OpenAPI(registry.scheme)
        self._metrics = Metrics(registry.store)

    async def handle(self, request: Request) -> Result:
        """The answer to any request whatever; nothing is raised."""
        target = parse(request.path)
        kind = None if target is None else self._registry.scheme.find(target.group, target.version, target.resource)
        result = await self._answer(request, target, kind)
        if target is not None and kind is not None:
            self._metrics.count(request, target, result.status if isinstance(result, Answer) else 200)
        return result

    async def _answer(self, request: Request, target: Target | None, kind: Kind | None) -> Result:
        try:
            if target is None:
                return self._outside(request)
            if kind is None:
                return self._unserved(request, target)
            result = self._dispatch(request, target, kind)
            return await result if inspect.isawaitable(result) else result
        except statuses.StatusError as failure:
            return Answer.failure(failure)
        except RecursionError:
            return Answer.failure(statuses.bad_request("the body is nested too deeply"))
        except Exception:
            _log.exception("request failed: %s %s", request.method, request.path)
            return Answer.failure(statuses.internal_error("the server failed to answer; its log says why"))

    def _dispatch(self, request: Request, target: Target, kind: Kind) -> Result | Awaitable[Result]:
        if bool(target.namespace) != kind.namespaced and (target.namespace or target.name):
            raise statuses.no_such_resource()
        call = Call(request, target, kind, self._registry)
        if kind.warning:
            return self._warned(call)
        return self._answered(call)

    async def _warned(self, call: Call) -> Result:
        """The answer with the warning that users of a deprecated version get."""
        result = self._answered(call)
        answer = await result if inspect.isawaitable(result) else result
        if isinstance(answer, Answer):
            said = answer.headers.get("Warning")
            answer.headers["Warning"] = ", ".join(filter(None, (said, statuses.warning(call.kind.warning))))
        return answer

    def _answered(self, call: Call) -> Result | Awaitable[Result]:
        request, target, kind = call.request, call.target, call.kind
        if kind.resource in self._questions:
            if request.method != "POST":
                raise statuses.method_not_allowed()
            return self._questions[kind.resource](call)
        if request.method == "GET" and (target.watch or (not target.name and request.flag("watch"))):
            return watching.watch(call, self._lines)
        return _verb(kind, target, request.method)(call)

    def _unserved(self, request: Request, target: Target) -> Result:
        if target.group not in self._registry.scheme.groups():
            return Answer.text("404 page not found\n", 404)
        raise statuses.no_such_resource()

    def _outside(self, request: Request) -> Result:
        """Paths that name no resource: discovery, OpenAPI, version, health."""
        if not request.path.startswith("/"):
            return Answer.text("404 page not found\n", 404)
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        path = request.path.rstrip("/") or "/"
        if path.startswith("/openapi/v3"):
            return self._openapi.answer(request, path)
        if path == "/metrics":
            return Answer(200, self._metrics.exposition().encode(), "text/plain; version=0.0.4; charset=utf-8")
        found = discovery.answer(request, path, self._registry.scheme) or health.answer(request, path)
        if found is None:
            return Answer.text("404 page not found\n", 404)
        return found


def _verb(kind: Kind, target: Target, method: str) -> Verb:
    """Raises a 404 or 405 Failure."""
    if target.subresource:
        verbs = _SUBRESOURCES.get((kind.resource, target.subresource))
        if target.subresource == "status" and kind.status:
            verbs = _WHOLE_OBJECT
        elif target.subresource == "scale" and kind.scale:
            verbs = _SCALE
        if verbs is None:
            raise statuses.no_such_resource()
        if method not in verbs:
            raise statuses.method_not_allowed()
        return verbs[method]
    name, verb = (_OBJECT if target.name else _COLLECTION).get(method, ("", reading.get))
    everywhere = kind.namespaced and not target.namespace
    if name not in kind.verbs or (everywhere and method in ("POST", "DELETE")):
        raise statuses.method_not_allowed()
    return verb
