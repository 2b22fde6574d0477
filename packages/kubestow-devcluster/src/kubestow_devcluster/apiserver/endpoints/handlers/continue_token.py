"""Continue tokens: the position at which a paginated list continues, in kube-apiserver's format."""

from __future__ import annotations

import base64

import msgspec

from kubestow_devcluster.apiserver import statuses

__all__ = ["ContinueToken"]

_VERSION = "meta.k8s.io/v1"


class ContinueToken(msgspec.Struct):
    """``rv`` is the resourceVersion of the list, -1 for the current state; ``start`` the key to start from."""

    rv: int
    start: str
    v: str = _VERSION

    def encode(self) -> str:
        token = msgspec.json.encode({"v": self.v, "rv": self.rv, "start": self.start})
        return base64.urlsafe_b64encode(token).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        """Raises a 400 StatusError."""
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            token = msgspec.json.decode(raw, type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise statuses.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
        if token.v != _VERSION:
            raise statuses.bad_request("continue key is not valid: server does not recognize this encoded version")
        return token
