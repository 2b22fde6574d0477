"""What the command of a container does, for a few commands that tests and examples use.

No process runs on a simulated node. :mod:`shell_scripts` understands ``true``, ``false``, ``sleep``, ``echo`` and
``exit``, alone and in scripts of a shell (``sh -c 'echo a; sleep 5 && exit 3'``), with the environment variables that
the pod defines. Any other command is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubestow_devcluster.containers.shell_scripts import ScriptResult, UnknownScript, run_command, run_script

ContainerCommand = ScriptResult

_SHELLS = ("ash", "bash", "dash", "sh")
_FIELD = re.compile(r"metadata\.(?:(name|namespace|uid)|(labels|annotations)\['([^']+)'\])")
#: A reference to an environment variable in arguments, which the kubelet expands.
_REFERENCE = re.compile(r"\$(\$\([^)]*\)|\(([^)]*)\))")


def command_of(container: Mapping[str, Any], metadata: Mapping[str, Any]) -> ContainerCommand | None:
    """What the command of a container does; None if it has none or an unknown one.

    ``metadata`` is that of the pod, to which environment variables may refer.
    """
    if not container.get("command") and not container.get("args"):
        return None
    # The environment variables whose value is known: those with a value, or of a field of the metadata.
    variables: dict[str, str] = {}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if source:
            field = _FIELD.fullmatch((source.get("fieldRef") or {}).get("fieldPath", ""))
            if field is not None:
                found = metadata.get(field[1]) if field[1] else (metadata.get(field[2]) or {}).get(field[3])
                variables |= {} if found is None else {variable["name"]: str(found)}
        else:
            variables[variable["name"]] = _expanded(variable.get("value", ""), variables)
    arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
    arguments = [_expanded(argument, variables) for argument in arguments]
    try:
        if arguments[0].rpartition("/")[2] not in _SHELLS:
            return run_command(arguments)
        if len(arguments) == 3 and arguments[1] == "-c":
            return run_script(arguments[2], variables)
    except UnknownScript:
        pass
    return None


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced by the variable, and ``$$(NAME)`` by ``$(NAME)``; other references stay."""

    def value(reference: re.Match[str]) -> str:
        if reference[2] is None:
            return reference[1]
        return variables.get(reference[2], reference[0])

    return _REFERENCE.sub(value, text)
