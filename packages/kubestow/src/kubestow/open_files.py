"""The limit of the operating system on open files (RLIMIT_NOFILE), which sockets count against."""

from __future__ import annotations

#: Assumed where the operating system has no such limit.
_UNLIMITED = 2**20


def open_file_limit() -> int:
    """How many files this process may open."""
    try:
        import resource
    except ImportError:  # not on every platform
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_open_file_limit() -> None:
    """Raise the limit as far as the process may, as programs written in Go do; where that fails, it stays as it is."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a limit above that of the kernel, or a system that has another rule
        return
