"""The version of this package, as ``--version``, the User-Agent header and ``kubestow_build_info`` show it."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
