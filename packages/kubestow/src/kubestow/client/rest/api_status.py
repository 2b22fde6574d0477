"""The ``v1.Status`` in which the API server explains a failure, as a response body or as an ERROR event of a watch."""

from __future__ import annotations

import msgspec

from kubestow.errors import APIError

__all__ = ["APIStatus"]


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class APIStatus(msgspec.Struct):
    """The fields of a ``v1.Status`` that become an :class:`APIError`."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None

    @classmethod
    def parse(cls, data: bytes | msgspec.Raw) -> APIStatus:
        """Raises one of :data:`kubestow.api.meta.UNDECODABLE`."""
        return _DECODER.decode(data)

    @property
    def retry_after(self) -> float | None:
        """The delay in seconds that the server requests before a retry."""
        return None if self.details is None else self.details.retry_after_seconds

    def error(self) -> APIError:
        """The failure that an ERROR event of a watch stands for."""
        return APIError(self.code, self.reason, self.message)


_DECODER = msgspec.json.Decoder(APIStatus)
