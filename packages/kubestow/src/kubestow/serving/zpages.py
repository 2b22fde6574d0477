"""The z-pages: /configz, /flagz and /statusz.

/flagz and /statusz are plain text, or objects (JSON, YAML or CBOR) if the Accept header requests them, as in Kubernetes
components. Secrets in the configuration (keys of extenders, plugin arguments named like a token or a password) are
redacted.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import cbor2
import msgspec
import yaml

from kubestow.api.formats.timestamps import timestamp
from kubestow.config import KubeSchedulerConfiguration, render
from kubestow.http.messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.rules.minors import Minor
from kubestow.version import KUBERNETES_VERSION, VERSION

_COMPONENT = "kube-scheduler"
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_GROUP = "config.k8s.io"
_VERSIONS = ("v1beta1", "v1alpha1")
_SECRET = re.compile(r"(token|password|passwd|secret|credential|privatekey|apikey|keydata|certdata)", re.IGNORECASE)
_REDACTED = "<redacted>"
_SELF_DESCRIBED_CBOR = 55799
"""The tag in front of Kubernetes' CBOR (RFC 8949, 3.4.6)."""
_ENCODERS: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = MappingProxyType(
    {
        "application/json": msgspec.json.encode,
        "application/yaml": lambda obj: yaml.safe_dump(obj, sort_keys=False).encode(),
        "application/cbor": lambda obj: cbor2.dumps(cbor2.CBORTag(_SELF_DESCRIBED_CBOR, obj)),
    }
)


def redacted(value: Any) -> Any:
    """A copy of plain data in which non-empty strings under names of secrets are replaced."""
    if isinstance(value, Mapping):
        return {
            name: _REDACTED if _SECRET.search(str(name)) and isinstance(item, (str, bytes)) and item else redacted(item)
            for name, item in value.items()
        }
    return [redacted(item) for item in value] if isinstance(value, (list, tuple)) else value


def configz(configuration: KubeSchedulerConfiguration, request: HTTPRequest) -> HTTPResponse:
    """/configz: the effective configuration."""
    return HTTPResponse.indented_json({"componentconfig": redacted(render(configuration))})


class ZPages:
    """The handlers of /flagz and /statusz.

    ``flags`` are the flags of this process by name, ``minor`` is the version of Kubernetes that is emulated,
    ``server_version`` returns that of the API server ("" if it is not known), ``paths`` are listed by /statusz, ``now``
    returns the time in UTC.
    """

    def __init__(
        self,
        flags: Mapping[str, str],
        *,
        minor: Minor,
        server_version: Callable[[], str],
        paths: Sequence[str],
        now: Callable[[], datetime],
    ) -> None:
        self._flags, self._paths = flags, paths
        self._emulated, self._server_version = str(minor), server_version
        self._now, self._started = now, now()

    def flagz(self, request: HTTPRequest) -> HTTPResponse:
        """The effective flags."""
        flags = dict(sorted(self._flags.items()))
        lines = [f"{name}={value}" for name, value in flags.items()]
        return _page(request, "Flagz", lines, {"flags": flags})

    def statusz(self, request: HTTPRequest) -> HTTPResponse:
        """Versions, start time and uptime. The objects have Kubernetes' fields, the text has more."""
        uptime = int((self._now() - self._started).total_seconds())
        hours, minutes, seconds = uptime // 3600, uptime // 60 % 60, uptime % 60
        python = f"{platform.python_implementation()} {platform.python_version()}"
        binary, emulated = KUBERNETES_VERSION.removeprefix("v"), self._emulated
        lines = [
            f"Started: {self._started:%a %b %d %H:%M:%S UTC %Y}",
            f"Up: {hours} hr {minutes:02} min {seconds:02} sec",
            f"Python version: {python}",
            f"kubestow version: {VERSION}",
            f"Binary version: {binary}",
            f"Emulation version: {emulated}",
            f"API server version: {self._server_version().removeprefix('v') or 'unknown'}",
            f"Paths: {' '.join(self._paths)}",
        ]
        status = {
            "startTime": timestamp(self._started),
            "uptimeSeconds": uptime,
            "goVersion": python,
            "binaryVersion": binary,
            "emulationVersion": emulated,
            "paths": list(self._paths),
        }
        return _page(request, "Statusz", lines, status)


def _page(request: HTTPRequest, kind: str, lines: Sequence[str], content: Mapping[str, Any]) -> HTTPResponse:
    accepted = [part.strip() for part in request.header("accept").split(",")]
    for part in accepted:
        media_type, version = _structured(part, kind)
        if version:
            obj = {"kind": kind, "apiVersion": f"{_GROUP}/{version}", "metadata": {"name": _COMPONENT}, **content}
            warning = {"Warning": f'299 - "{_GROUP}/{version} {kind} is deprecated"'} if version == "v1alpha1" else {}
            return HTTPResponse(200, _ENCODERS[media_type](obj), media_type, warning)
    if not {part.split(";")[0] for part in accepted} & {"", "*/*", "text/*", "text/plain"}:
        raise StatusError(406, "NotAcceptable", f"only text/plain, and {kind} as {', '.join(_ENCODERS)}, are available")
    heading = f"{_COMPONENT} {kind.lower()}"
    return HTTPResponse.text("\n".join(["", heading, _WARNING, "", *lines, ""]))


def _structured(part: str, kind: str) -> tuple[str, str]:
    """The media type and API version that one part of an Accept header requests; no version if it requests text."""
    media_type, *pairs = (piece.strip() for piece in part.split(";"))
    parameters = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    version = parameters.get("v", "")
    is_structured = (
        media_type in _ENCODERS
        and parameters.get("g") == _GROUP
        and parameters.get("as") == kind
        and version in _VERSIONS
    )
    return media_type, version if is_structured else ""
