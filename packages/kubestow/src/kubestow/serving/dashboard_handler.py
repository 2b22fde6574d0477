"""/dashboard: the page, its event stream, and what it reads on request.

    /dashboard                                        the page
    /dashboard/assets/<file>                          its files
    /dashboard/events                                 server-sent events: a snapshot, then what changes
    /dashboard/queue?place=&group=&text=&offset=      a page of the queue
    /dashboard/pods/<namespace>/<name>                a pod: attempts, every plugin on every node, preemption candidates
    /dashboard/pods/<namespace>/<name>/counterfactuals  the changes that would make it fit
    /dashboard/groups/<id>/counterfactuals            the changes that would help pods that wait for the same reason
    /dashboard/nodes/<name>                           a node: its pods, and what is free
    /dashboard/reports/<plugin>                       what a plugin reports, such as queues of jobs

All of it is read-only. The page and its files contain no data of the cluster. Data is for the page itself, and for
programs: another site could not read it, but could have a browser with a client certificate, or one that needs no
credentials, start searches.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.dashboard.counterfactual_searches import SearchFailed
from kubestow.dashboard.event_stream import TooManyViewers
from kubestow.errors import PluginError
from kubestow.http.messages import JSON, HTTPRequest, HTTPResponse, Result, StatusError
from kubestow.observability.observability import Observability
from kubestow.scheduling.interfaces import Clock

if TYPE_CHECKING:
    from kubestow.dashboard.dashboard import Dashboard

#: Responses of fewer bytes are not compressed.
_MIN_GZIP_SIZE = 4096
#: Of the queue: an offset, and characters of the text to search for, which no namespace and name exceed.
_OFFSET, _MAX_TEXT = re.compile(r"[0-9]{1,9}"), 320

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

#: The values of ``Sec-Fetch-Site``, which a page cannot change, in requests of the page itself and of the address bar.
#: Programs, and browsers over plain HTTP to another machine, send none.
_OWN_REQUESTS = ("same-origin", "none", "")


INDEX = "index.html"
#: The style of charts, the same as in reports.
CHARTS = "charts.css"

#: The files of the page, and their content types. Nothing else is read, whatever a path says.
_CONTENT_TYPES = {
    INDEX: "text/html; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "style.css": "text/css; charset=utf-8",
    **dict.fromkeys(
        (
            "app.js",
            "cluster.js",
            "decisions.js",
            "format.js",
            "pending.js",
            "pod.js",
            "queue.js",
            "report.js",
            "store.js",
            "table.js",
            "try.js",
            "vendor/preact-htm.js",
            "vendor/uplot.js",
        ),
        "text/javascript; charset=utf-8",
    ),
    CHARTS: "text/css; charset=utf-8",
    "vendor/uplot.css": "text/css; charset=utf-8",
    "vendor/LICENSES.txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file, its gzip form, and an entity tag of its content; read and compressed when it is first asked for."""

    content_type: str
    content: bytes
    compressed: bytes
    etag: str


@cache
def page_file(name: str) -> PageFile | None:
    """A file of the page by its path below the assets; None for any other name."""
    content_type = _CONTENT_TYPES.get(name)
    if content_type is None:
        return None
    package = "kubestow.reports" if name == CHARTS else "kubestow.dashboard"
    content = files(package).joinpath("assets", *name.split("/")).read_bytes()
    return PageFile(content_type, content, gzip.compress(content, 9, mtime=0), f'"{sha256(content).hexdigest()[:16]}"')


class DashboardHandler:
    """Handles the paths below ``/dashboard``, from which the page is served before there is a scheduler, too."""

    def __init__(
        self,
        observability: Observability,
        clock: Clock,
        configuration: KubeSchedulerConfiguration,
        gates: FeatureGates,
    ) -> None:
        self._observability, self._clock = observability, clock
        self._configuration, self._gates = configuration, gates
        self._dashboard_of_scheduler: Dashboard | None = None

    def _dashboard(self) -> Dashboard:
        """The dashboard of the scheduler, made for the first request. Raises StatusError (503) before there is one."""
        if self._dashboard_of_scheduler is None:
            scheduler = self._observability.scheduler
            if scheduler is None:
                raise StatusError(503, "ServiceUnavailable", "the scheduler is still starting")
            # Imported here because many schedulers are never looked at.
            from kubestow.dashboard.dashboard import Dashboard

            self._dashboard_of_scheduler = Dashboard(
                scheduler,
                self._observability.attempts,
                self._observability.preemptions,
                self._clock,
                self._configuration,
                self._gates,
                server_version=lambda: self._observability.server_version,
            )
        return self._dashboard_of_scheduler

    def close(self) -> None:
        """End all event streams."""
        if self._dashboard_of_scheduler is not None:
            self._dashboard_of_scheduler.stream.close()

    def index(self, request: HTTPRequest) -> HTTPResponse:
        """The page."""
        page = page_file(INDEX)
        assert page is not None
        return _file(request, page)

    def __call__(self, rest: str, request: HTTPRequest) -> Result:
        """What is below ``/dashboard/``.

        Raises StatusError: 404 for an unknown path, 403 for data that the page of another site requests, 400 for an
        invalid parameter.
        """
        match rest.split("/"):
            case [""]:  # relative references of the page start from /dashboard
                return HTTPResponse(308, b"", headers={**_SECURITY_HEADERS, "Location": "../dashboard"})
            case ["assets", *path] if (found := page_file("/".join(path))) is not None:
                return _file(request, found)
            case _ if request.header("sec-fetch-site") not in _OWN_REQUESTS:
                raise StatusError(403, "Forbidden", "the data of the dashboard is for its own page")
            case ["events"]:
                return self._events(request)
            case ["queue"]:
                return self._queue(request)
            case ["nodes", name]:
                return _data(request, self._dashboard().node(name), f'node "{name}" is unknown')
            case ["reports", name]:
                return self._report(request, name)
            case ["pods", namespace, name]:
                return _data(request, self._dashboard().pods.of(namespace, name), _unknown_pod(namespace, name))
            case ["pods", namespace, name, "counterfactuals"]:
                search = self._dashboard().counterfactuals(namespace, name)
                return _searched(request, search, _unknown_pod(namespace, name))
            case ["groups", group, "counterfactuals"]:
                search = self._dashboard().group_counterfactuals(group)
                return _searched(request, search, "no pod waits for this reason any more")
            case _:
                raise StatusError.not_found()

    def _events(self, request: HTTPRequest) -> HTTPResponse:
        compressed = _accepts_gzip(request)
        try:
            stream = self._dashboard().events(compressed=compressed)
        except TooManyViewers as error:
            raise StatusError(503, "ServiceUnavailable", str(error)) from None
        headers = _SECURITY_HEADERS | ({"Content-Encoding": "gzip"} if compressed else {})
        content_type = "text/event-stream; charset=utf-8"
        return HTTPResponse(200, b"", content_type, headers, stream=None if request.method == "HEAD" else stream)

    def _report(self, request: HTTPRequest, name: str) -> HTTPResponse:
        try:
            found = self._dashboard().reports.report(name)
        except PluginError as error:
            raise StatusError(500, "InternalError", str(error)) from None
        return _data(request, found, f'no plugin "{name}" reports')

    def _queue(self, request: HTTPRequest) -> HTTPResponse:
        place, group, text = (request.parameter(name) or "" for name in ("place", "group", "text"))
        offset = request.parameter("offset") or "0"
        if not _OFFSET.fullmatch(offset) or len(text) > _MAX_TEXT:
            expected = f"expected an offset of at most 9 digits, and a text of at most {_MAX_TEXT} characters"
            raise StatusError(400, "BadRequest", expected)
        return _data(request, self._dashboard().pages.page(place, group, text.lower(), int(offset)), "")


def _unknown_pod(namespace: str, name: str) -> str:
    return f"pod {namespace}/{name} is unknown: it does not exist, or it has terminated"


def _file(request: HTTPRequest, file: PageFile) -> HTTPResponse:
    headers = {**_SECURITY_HEADERS, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if request.header("if-none-match") == file.etag:
        return HTTPResponse(304, b"", file.content_type, headers)
    if not _accepts_gzip(request):
        return HTTPResponse(200, file.content, file.content_type, headers)
    return HTTPResponse(200, file.compressed, file.content_type, headers | {"Content-Encoding": "gzip"})


def _data(request: HTTPRequest, data: dict[str, Any] | None, problem: str) -> HTTPResponse:
    """Plain data as JSON. Raises StatusError (404) with the ``problem`` if there is none."""
    if data is None:
        raise StatusError.not_found(problem)
    body, headers = msgspec.json.encode(data), dict(_SECURITY_HEADERS)
    if len(body) >= _MIN_GZIP_SIZE and _accepts_gzip(request):
        body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
    return HTTPResponse(200, body, JSON, headers)


async def _searched(request: HTTPRequest, search: Awaitable[dict[str, Any] | None], problem: str) -> HTTPResponse:
    """The result of a search. Raises StatusError: 503 if it failed, 404 with the ``problem`` if there is no subject."""
    try:
        found = await search
    except SearchFailed as error:
        raise StatusError(503, "ServiceUnavailable", str(error)) from None
    return _data(request, found, problem)


def _accepts_gzip(request: HTTPRequest) -> bool:
    return "gzip" in request.header("accept-encoding")
