"""The response of an API handler: a body that is sent at once or in chunks, or the stream of a watch."""

from __future__ import annotations

from kubestow.http.messages import HTTPResponse as Response

__all__ = ["Response"]
