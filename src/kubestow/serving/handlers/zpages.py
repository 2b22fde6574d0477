"""What a scheduler says of itself: /configz, /flagz and /statusz.

/flagz and /statusz are text for people, and structured where the Accept header asks for it, as Kubernetes' are. Secrets
that a configuration may hold (keys of extenders, what plugins' arguments call a token or a password) are not shown.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import yaml

from kubestow.api.timestamps import timestamp
from kubestow.config import SchedulerConfiguration, render
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.version import KUBERNETES_VERSION, VERSION

__all__ = ["ZPages", "redacted"]

_COMPONENT = "kube-scheduler"
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_GROUP = "config.k8s.io"
_VERSIONS = ("v1beta1", "v1alpha1")
_SECRET = re.compile(r"(token|password|passwd|secret|credential|privatekey|apikey|keydata|certdata)", re.IGNORECASE)
_HIDDEN = "<redacted>"


def redacted(value: Any) -> Any:
    """Plain data without what its names say is secret."""
    if isinstance(value, Mapping):
        return {
            name: _HIDDEN if _SECRET.search(str(name)) and isinstance(item, (str, bytes)) and item else redacted(item)
            for name, item in value.items()
        }
    return [redacted(item) for item in value] if isinstance(value, (list, tuple)) else value


class ZPages:
    """``flags`` are the flags of this process by name, ``paths`` what /statusz lists, ``now`` the time in UTC."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        flags: Mapping[str, str],
        *,
        paths: Sequence[str],
        now: Callable[[], datetime],
    ) -> None:
        self._configuration, self._flags, self._paths = configuration, flags, paths
        self._now, self._started = now, now()

    def configz(self, request: HTTPRequest) -> HTTPResponse:
        """The effective configuration."""
        return HTTPResponse.json({"componentconfig": redacted(render(self._configuration))})

    def flagz(self, request: HTTPRequest) -> HTTPResponse:
        """The flags as they are in effect."""
        flags = dict(sorted(self._flags.items()))
        lines = [f"{name}={value}" for name, value in flags.items()]
        return _page(request, "Flagz", lines, {"flags": flags})

    def statusz(self, request: HTTPRequest) -> HTTPResponse:
        """What this is, and since when it runs."""
        up = self._now() - self._started
        python = f"{platform.python_implementation()} {platform.python_version()}"
        binary, emulated = KUBERNETES_VERSION.removeprefix("v"), KUBERNETES_VERSION.removeprefix("v").rsplit(".", 1)[0]
        lines = [
            f"Started: {self._started:%a %b %d %H:%M:%S UTC %Y}",
            f"Up: {_spoken(up)}",
            f"Python version: {python}",
            f"kubestow version: {VERSION}",
            f"Binary version: {binary}",
            f"Emulation version: {emulated}",
            f"Paths: {' '.join(self._paths)}",
        ]
        status = {
            "startTime": timestamp(self._started),
            "uptimeSeconds": int(up.total_seconds()),
            "goVersion": python,
            "binaryVersion": binary,
            "emulationVersion": emulated,
            "paths": list(self._paths),
        }
        return _page(request, "Statusz", lines, status)


def _page(request: HTTPRequest, kind: str, lines: Sequence[str], content: Mapping[str, Any]) -> HTTPResponse:
    accepted = [part.strip() for part in request.header("accept").split(",")]
    for media in accepted:
        kind_of_media, version = _structured(media, kind)
        if version:
            return _object(kind, version, kind_of_media, content)
    if not {media.split(";")[0] for media in accepted} & {"", "*/*", "text/*", "text/plain"}:
        raise StatusError(406, "NotAcceptable", f"only text/plain, and {kind} as application/json or application/yaml")
    heading = f"{_COMPONENT} {kind.lower()}"
    return HTTPResponse.text("\n".join(["", heading, _WARNING, "", *lines, ""]))


def _structured(media: str, kind: str) -> tuple[str, str]:
    """The media type and version that one part of an Accept header asks for; no version when it asks for text."""
    name, *parameters = (part.strip() for part in media.split(";"))
    given = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
    asked = name in ("application/json", "application/yaml") and given.get("g") == _GROUP and given.get("as") == kind
    version = given.get("v", "")
    return name, version if asked and version in _VERSIONS else ""


def _object(kind: str, version: str, media: str, content: Mapping[str, Any]) -> HTTPResponse:
    whole = {"kind": kind, "apiVersion": f"{_GROUP}/{version}", "metadata": {"name": _COMPONENT}, **content}
    body = (
        msgspec.json.encode(whole) if media == "application/json" else yaml.safe_dump(whole, sort_keys=False).encode()
    )
    headers = {"Warning": f'299 - "{_GROUP}/{version} {kind} is deprecated"'} if version == "v1alpha1" else {}
    return HTTPResponse(200, body, media, headers)


def _spoken(up: timedelta) -> str:
    minutes, seconds = divmod(int(up.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} hr {minutes:02} min {seconds:02} sec"
