"""Handlers by path, and their failures as responses.

Paths are compared as a whole and never looked up in a file system.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from kubestow.http.messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.log_fields import fields

_log = logging.getLogger(__name__)

Result = HTTPResponse | Awaitable[HTTPResponse]
Handler = Callable[[HTTPRequest], Result]
#: Called with the rest of the path after the prefix.
PrefixHandler = Callable[[str, HTTPRequest], Result]

_READ_METHODS = ("GET", "HEAD")


async def respond(request: HTTPRequest, handle: Callable[[HTTPRequest], Awaitable[HTTPResponse]]) -> HTTPResponse:
    """The response of a handler; every failure becomes a response too, and its details go to the log."""
    try:
        return await handle(request)
    except StatusError as error:
        response = HTTPResponse.error(error)
        if error.code == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response
    except UnicodeEncodeError:  # header values are arbitrary bytes
        return HTTPResponse.error(StatusError(400, "BadRequest", "the request contains text that is not UTF-8"))
    except Exception:
        _log.exception("Failed to handle a request", extra=fields(verb=request.method, path=request.path[:256]))
        return HTTPResponse.error(StatusError.internal())


class PathMux:
    """Selects the handler of a request: by exact path, by prefix, or by exact path for DELETE."""

    def __init__(
        self,
        *,
        paths: Mapping[str, Handler],
        prefixes: Mapping[str, PrefixHandler],
        deletions: Mapping[str, Handler],
    ) -> None:
        self._paths, self._prefixes, self._deletions = paths, prefixes, deletions

    async def handle(self, request: HTTPRequest) -> HTTPResponse:
        """Call the handler. Raises StatusError: 404 for an unknown path, 405 for another method, or the handler's."""
        result = self._call(request)
        return result if isinstance(result, HTTPResponse) else await result

    def _call(self, request: HTTPRequest) -> Result:
        if request.method == "DELETE" and request.path in self._deletions:
            return self._deletions[request.path](request)
        handler = self._paths.get(request.path)
        if handler is not None:
            if request.method not in _READ_METHODS:
                raise StatusError.method_not_allowed()
            return handler(request)
        for prefix, prefix_handler in self._prefixes.items():
            if request.path.startswith(prefix) and request.method in _READ_METHODS:
                return prefix_handler(request.path.removeprefix(prefix), request)
        raise StatusError.not_found()
