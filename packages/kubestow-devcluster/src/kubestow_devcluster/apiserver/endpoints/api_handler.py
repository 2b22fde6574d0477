"""The API handler: dispatches a request to its endpoint, and turns every error into a Status.

This is the whole API without a network: it takes a :class:`Request` and returns a :class:`HTTPResponse`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kubestow.http.messages import HTTPResponse
from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.discovery import HealthEndpoints, RequestMetrics, serve_discovery
from kubestow_devcluster.apiserver.endpoints.openapi import OpenAPI
from kubestow_devcluster.apiserver.endpoints.reading_handlers import (
    EventCache,
    ResourceMetrics,
    get,
    get_metrics,
    list_metrics,
    list_objects,
    watch,
)
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope, converted
from kubestow_devcluster.apiserver.endpoints.requests import (
    Request,
    RequestInfo,
    attributes_of,
    authorize_request,
    parse_request_info,
)
from kubestow_devcluster.apiserver.endpoints.subresource_handlers import (
    connect,
    create_binding,
    create_eviction,
    create_pod_binding,
    create_self_subject_access_review,
    create_self_subject_review,
    create_self_subject_rules_review,
    create_subject_access_review,
    create_token,
    create_token_review,
    get_log,
    get_scale,
    patch_scale,
    update_scale,
)
from kubestow_devcluster.apiserver.endpoints.writing_handlers import create, delete, delete_collection, patch, update
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.resources.built_in import METRICS_GROUP
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator, ServiceAccountTokens
from kubestow_devcluster.apiserver.security.authorization import (
    RBAC,
    RBAC_GROUP,
    AlwaysAllow,
    Authorizer,
    check_escalation,
)
from kubestow_devcluster.apiserver.serialization.media_types import (
    JSON,
    PROTOBUF,
    YAML,
    ResponseForm,
    negotiate_output_media_type,
)

_log = logging.getLogger(__name__)

Handler = Callable[[RequestScope], HTTPResponse | Awaitable[HTTPResponse]]

#: Method -> verb and handler, for one object and for a collection.
_OBJECT: dict[str, tuple[str, Handler]] = {
    "GET": ("get", get),
    "PUT": ("update", update),
    "PATCH": ("patch", patch),
    "DELETE": ("delete", delete),
}
_COLLECTION: dict[str, tuple[str, Handler]] = {
    "GET": ("list", list_objects),
    "POST": ("create", create),
    "DELETE": ("deletecollection", delete_collection),
}
#: Method -> handler, for subresources.
_CONNECT: dict[str, Handler] = {"GET": connect, "POST": connect}
_PART_OF_OBJECT: dict[str, Handler] = {"GET": get, "PUT": update, "PATCH": patch}
_SCALE: dict[str, Handler] = {"GET": get_scale, "PUT": update_scale, "PATCH": patch_scale}
_SUBRESOURCES: dict[tuple[str, str], dict[str, Handler]] = {
    ("pods", "binding"): {"POST": create_pod_binding},
    ("pods", "eviction"): {"POST": create_eviction},
    ("pods", "ephemeralcontainers"): _PART_OF_OBJECT,
    ("pods", "resize"): _PART_OF_OBJECT,
    ("pods", "log"): {"GET": get_log},
    ("pods", "attach"): _CONNECT,
    ("pods", "exec"): _CONNECT,
    ("pods", "portforward"): _CONNECT,
    ("namespaces", "finalize"): {"PUT": update},
}
#: The handlers of kinds that are created and not stored.
_CREATE_ONLY: dict[str, Handler] = {
    "bindings": create_binding,
    "selfsubjectreviews.authentication.k8s.io": create_self_subject_review,
}
#: The same for access reviews, which take the authorizer.
_ACCESS_REVIEWS: dict[str, Callable[..., HTTPResponse]] = {
    "selfsubjectaccessreviews.authorization.k8s.io": create_self_subject_access_review,
    "selfsubjectrulesreviews.authorization.k8s.io": create_self_subject_rules_review,
    "subjectaccessreviews.authorization.k8s.io": create_subject_access_review,
    "localsubjectaccessreviews.authorization.k8s.io": create_subject_access_review,
}


class APIHandler:
    """The API of one registry. ``authenticator`` evaluates token reviews, ``tokens`` issues those of service accounts.

    ``authorizer`` decides about every request. ``resource_metrics`` is the usage of nodes and pods, if it is served.
    """

    def __init__(
        self,
        registry: Registry,
        authenticator: RequestAuthenticator,
        authorizer: Authorizer,
        tokens: ServiceAccountTokens,
        resource_metrics: ResourceMetrics | None = None,
    ) -> None:
        self._registry, self._authorizer = registry, authorizer
        token_review = partial(create_token_review, authenticator=authenticator)
        self._create_only = _CREATE_ONLY | {"tokenreviews.authentication.k8s.io": token_review}
        for name, access_review in _ACCESS_REVIEWS.items():
            self._create_only[name] = partial(access_review, authorizer=authorizer)
        self._resource_metrics = resource_metrics
        self._create_token = partial(create_token, tokens=tokens)
        self._event_cache = EventCache()
        self._openapi = OpenAPI(registry.scheme)
        self._metrics = RequestMetrics(registry.store)
        self._health = HealthEndpoints(registry.scheme.minor, has_default_roles=isinstance(authorizer, RBAC))

    async def handle(self, request: Request) -> HTTPResponse:
        """The response to any request, errors included. Never raises."""
        info = parse_request_info(request.path)
        kind = None if info is None else self._registry.scheme.find(info.group, info.version, info.resource)
        result = await self._respond(request, info, kind)
        if info is not None and kind is not None:
            self._metrics.count(request, info, result.status)
        return result

    async def _respond(self, request: Request, info: RequestInfo | None, kind: Kind | None) -> HTTPResponse:
        try:
            if not isinstance(self._authorizer, AlwaysAllow):
                authorize_request(self._authorizer, request.user, attributes_of(request, info))
            if info is None:
                return self._serve_path(request)
            if kind is None:
                if info.group not in self._registry.scheme.groups():
                    return HTTPResponse.text("404 page not found\n", 404)
                raise statuses.no_such_resource()
            result = self._dispatch(request, info, kind)
            response = await result if inspect.isawaitable(result) else result
        except statuses.StatusError as error:
            response = HTTPResponse.error(error)
        except RecursionError:
            response = HTTPResponse.error(statuses.bad_request("the request body is nested too deeply"))
        except Exception:
            extra = fields(verb=request.method, path=request.path)
            _log.exception("request failed: %s %s", request.method, request.path, extra=extra)
            response = HTTPResponse.error(statuses.internal_error("the request failed; see the server's log"))
        # Statuses and other results of handlers that return JSON, in the media type that the client prefers.
        accept = request.headers.accept
        if response.content_type != JSON or response.stream is not None or response.chunks is not None:
            return response
        if YAML not in accept and PROTOBUF not in accept:  # almost always
            return response
        try:
            options = negotiate_output_media_type(accept, has_protobuf=kind is not None and kind.has_protobuf)
        except statuses.StatusError:
            return response
        return response if options.conversion is ResponseForm.TABLE else converted(response, options.media_type)

    def _dispatch(self, request: Request, info: RequestInfo, kind: Kind) -> HTTPResponse | Awaitable[HTTPResponse]:
        if bool(info.namespace) != kind.namespaced and (info.namespace or info.name):
            raise statuses.no_such_resource()
        authorize_creation = None
        if not isinstance(self._authorizer, AlwaysAllow):
            attributes = attributes_of(request, info)._replace(verb="create")
            authorize_creation = partial(authorize_request, self._authorizer, request.user, attributes)
        content_check = self._content_check(request, info, kind)
        scope = RequestScope(request, info, kind, self._registry, content_check, authorize_creation)
        if kind.rest.deprecation_warning:
            return self._with_warning(scope, kind.rest.deprecation_warning)
        return self._handle(scope)

    def _content_check(
        self, request: Request, info: RequestInfo, kind: Kind
    ) -> Callable[[Object, Object | None], None] | None:
        """The check of what the user of a request grants by roles and bindings; None for other kinds."""
        if kind.group != RBAC_GROUP or not isinstance(self._authorizer, RBAC):
            return None
        return partial(check_escalation, self._authorizer, request.user, kind.group_resource, info.namespace)

    async def _with_warning(self, scope: RequestScope, warning: str) -> HTTPResponse:
        """The response with a Warning header."""
        handled = self._handle(scope)
        result = await handled if inspect.isawaitable(handled) else handled
        if result.stream is None:
            others = result.headers.get("Warning")
            result.headers["Warning"] = ", ".join(filter(None, (others, statuses.warning_header(warning))))
        return result

    def _handle(self, scope: RequestScope) -> HTTPResponse | Awaitable[HTTPResponse]:
        request, info, kind = scope.request, scope.info, scope.kind
        if kind.resource in self._create_only:
            if request.method != "POST":
                raise statuses.method_not_allowed()
            return self._create_only[kind.resource](scope)
        if (kind.resource, info.subresource, request.method) == ("serviceaccounts", "token", "POST"):
            return self._create_token(scope)
        is_watch = request.method == "GET" and (info.watch or (not info.name and request.flag("watch")))
        if is_watch and "watch" in kind.rest.verbs:
            return watch(scope, self._event_cache)
        request.validate_timeout()
        if self._resource_metrics is not None and kind.group == METRICS_GROUP:
            if is_watch:
                raise statuses.method_not_allowed()
            return self._read_metrics(scope, self._resource_metrics)
        try:
            return _handler(kind, info, request.method)(scope)
        except statuses.StatusError as error:
            response = HTTPResponse.error(error)
            response.headers.update(scope.decoding_warnings)
            return response

    @staticmethod
    def _read_metrics(scope: RequestScope, metrics: ResourceMetrics) -> HTTPResponse:
        if scope.request.method != "GET":
            raise statuses.method_not_allowed()
        if scope.info.subresource:
            raise statuses.no_such_resource()
        return get_metrics(scope, metrics) if scope.info.name else list_metrics(scope, metrics)

    def _serve_path(self, request: Request) -> HTTPResponse:
        """Paths that are not resources: discovery, OpenAPI, version, health and metrics."""
        if not request.path.startswith("/"):
            return HTTPResponse.text("404 page not found\n", 404)
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        path = request.path.rstrip("/") or "/"
        if path.startswith(("/openapi/v2", "/openapi/v3")):
            return self._openapi.serve(request, path)
        if path == "/metrics":
            return HTTPResponse(200, self._metrics.exposition().encode(), "text/plain; version=0.0.4; charset=utf-8")
        response = serve_discovery(request, path, self._registry.scheme) or self._health.serve(request, path)
        return HTTPResponse.text("404 page not found\n", 404) if response is None else response


def _handler(kind: Kind, info: RequestInfo, method: str) -> Handler:
    """The handler of an object, collection or subresource. Raises a 404 or 405 StatusError."""
    if info.subresource:
        handlers = _SUBRESOURCES.get((kind.resource, info.subresource))
        if info.subresource == "status" and kind.subresources.status:
            handlers = _PART_OF_OBJECT
        elif info.subresource == "scale" and kind.subresources.scale:
            handlers = _SCALE
        if handlers is None:
            raise statuses.no_such_resource()
        if method not in handlers:
            raise statuses.method_not_allowed()
        return handlers[method]
    verb, handler = (_OBJECT if info.name else _COLLECTION).get(method, ("", get))
    is_all_namespaces = kind.namespaced and not info.namespace
    if verb not in kind.rest.verbs or (is_all_namespaces and method in ("POST", "DELETE")):
        raise statuses.method_not_allowed()
    return handler
