"""Token files in kube-apiserver's format: lines of ``token,user,uid`` and optionally ``"group1,group2"``."""

from __future__ import annotations

import csv
from pathlib import Path

from kubestow.errors import InputError
from kubestow_devcluster.apiserver.authentication.users import ALL_AUTHENTICATED, UserInfo

__all__ = ["read_token_file"]


def read_token_file(path: Path) -> dict[str, UserInfo]:
    """The users by token. Raises InputError with file and line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(str(path), f"cannot be read: {problem}") from None
    tokens: dict[str, UserInfo] = {}
    for number, record in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
        if not record:
            continue
        if len(record) < 3 or not record[0] or not record[1]:
            raise InputError(str(path), "expected token,user,uid[,groups]", place=f"line {number}")
        groups = tuple(group.strip() for group in record[3].split(",") if group.strip()) if len(record) > 3 else ()
        tokens[record[0]] = UserInfo(record[1], (*groups, ALL_AUTHENTICATED), record[2])
    if not tokens:
        raise InputError(str(path), "contains no tokens; expected lines of token,user,uid[,groups]")
    return tokens
