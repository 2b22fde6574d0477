"""Limits of a process on itself: CPU, memory, files, network, as far as the system allows.

They are taken by the process that is about to run code of unknown origin, and cannot be lifted again: resource limits,
a network namespace without any interface, and Landlock rules for files, and for TCP where there is no namespace. They
contain mistakes and curiosity of generated programs. They are no virtual machine: the kernel is shared, the process may
read the Python installation, and root may start further processes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGKILL = 9
#: Landlock's system calls have the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH, _VERSION_FLAG = 1, 1
#: Rights to files: execute, read a file, read a folder; all that the first version of Landlock has.
_EXECUTE, _READ_FILE, _READ_DIR, _ALL_FILE_RIGHTS = 1 << 0, 1 << 2, 1 << 3, (1 << 13) - 1
#: Rights that later versions have added: refer (2), truncate (3); rights to TCP: bind and connect (4).
_REFER, _TRUNCATE, _ALL_TCP = 1 << 13, 1 << 14, 3
#: What programs need outside of the Python installation: shared libraries, time zones, and a source of random bytes.
_SYSTEM_PATHS = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
)
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")


class _RulesetAttributes(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64), ("handled_access_net", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def limit_resources(*, cpu_seconds: int, memory_bytes: int, file_bytes: int, open_files: int) -> None:
    """Limit CPU time (the process is killed by SIGXCPU), address space, the size of written files, and open files.

    There are no core dumps, and the process dies with its parent.
    """
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_CORE: 0,
    }
    for kind, wanted in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def leave_network() -> bool:
    """Move into a network namespace without interfaces; whether that is allowed. The process must have one thread."""
    if sys.platform != "linux":
        return False
    libc = _libc()
    return any(libc.unshare(flags) == 0 for flags in (_CLONE_NEWNET, _CLONE_NEWUSER | _CLONE_NEWNET))


def forbid_processes() -> None:
    """Start no process or thread any more; root is exempt."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def restrict_files(*, writable: Iterable[Path], readable: Iterable[Path]) -> tuple[bool, bool]:
    """Allow reading below the installation and ``readable``, and writing below ``writable``, and nothing else.

    Returns whether Landlock restricts files, and whether it forbids TCP.
    """
    if sys.platform != "linux":
        return False, False
    libc = _libc()
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    if version < 1:
        return False, False
    rights = _ALL_FILE_RIGHTS | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = _RulesetAttributes(rights, _ALL_TCP if version >= 4 else 0)
    size = ctypes.sizeof(attributes) if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        return False, False
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    installation = (*map(Path, (sys.prefix, sys.base_prefix)), *map(Path, filter(None, sys.path)))
    for path in (*installation, *map(Path, _SYSTEM_PATHS), *readable):
        _allow(libc, ruleset, path, reading)
    for device in _DEVICES:
        _allow(libc, ruleset, Path(device), rights)
    for path in writable:
        _allow(libc, ruleset, path, rights & ~_EXECUTE)
    allowed = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return allowed, allowed and version >= 4


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    """Add a rule; a path that does not exist needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # Rights to folders are errors for a file.
        of_file = _EXECUTE | 1 << 1 | _READ_FILE | _TRUNCATE
        rule = _PathBeneath(rights if path.is_dir() else rights & of_file, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
