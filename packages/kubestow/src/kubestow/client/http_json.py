"""JSON over HTTP from servers that are not the API server, one GET at a time with a time limit; Prometheus queries.

Where there is no network, as in a simulation, a stand-in answers for all servers (:data:`STAND_IN`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from kubestow.api.json_text import UNDECODABLE
from kubestow.errors import Unreachable

Answer = Callable[[str, str, Mapping[str, str]], Any]
"""The decoded body for a server's URL, a path and a query. Raises Unreachable."""

STAND_IN: ContextVar[Answer | None] = ContextVar("stand_in", default=None)
"""What answers instead of the servers, None for the servers themselves."""

#: A request is given up after so many seconds.
_TIME_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class JSONServer:
    """A server at a URL; a ``token`` is sent as bearer token, ``insecure`` skips the verification of certificates.

    The certificate authorities in ``ca_file`` (PEM) are trusted besides those of the system.
    """

    url: str
    token: str = ""
    insecure: bool = False
    ca_file: str = ""

    async def get(self, path: str, query: Mapping[str, str]) -> Any:
        """The decoded body of a response with status 200. Raises Unreachable."""
        if (stand_in := STAND_IN.get()) is not None:
            return stand_in(self.url, path, query)
        import aiohttp  # only here, so that a plugin without HTTP source does not need it

        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            async with (
                asyncio.timeout(_TIME_LIMIT),
                aiohttp.ClientSession(headers=headers) as session,
                session.get(self.url.rstrip("/") + path, params=query, ssl=self._verification()) as response,
            ):
                body = await response.read()
                status = response.status
        except TimeoutError:
            raise Unreachable(self.url, f"no answer within {_TIME_LIMIT:.0f} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(self.url, f"{type(error).__name__}: {error}") from None
        if status != 200:
            raise Unreachable(self.url, f"GET {path} returned status {status}")
        try:
            return msgspec.json.decode(body)
        except UNDECODABLE as error:
            raise Unreachable(self.url, f"malformed response: {error}") from None

    def _verification(self) -> ssl.SSLContext | bool:
        """How certificates are verified. Raises OSError for a file that is missing or malformed."""
        if self.insecure or not self.ca_file or not self.url.startswith("https:"):
            return not self.insecure
        context = ssl.create_default_context()
        context.load_verify_locations(self.ca_file)
        return context


class PrometheusSample(NamedTuple):
    """An entry of an instant vector: the label ``instance`` ("" without), the time (Unix) and the value."""

    instance: str
    time: float
    value: float


async def query_vector(server: JSONServer, query: str) -> list[PrometheusSample]:
    """The instant vector that a query returns now; malformed entries are left out. Raises Unreachable."""
    answer = await server.get("/api/v1/query", {"query": query})
    samples = []
    try:
        data = answer["data"]
        if answer["status"] != "success" or data["resultType"] != "vector":
            raise Unreachable(server.url, f"query failed: {answer.get('error', data['resultType'])}")
        for entry in data["result"]:
            try:
                time, value = entry["value"]
                samples.append(PrometheusSample(str(entry["metric"].get("instance", "")), float(time), float(value)))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
    except (KeyError, TypeError, AttributeError):
        raise Unreachable(server.url, "the response is not one of the Prometheus HTTP API") from None
    return samples
