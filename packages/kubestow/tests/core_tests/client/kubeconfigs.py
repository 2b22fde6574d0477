"""Kubeconfig files and certificates."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml


def kubeconfig(server: str = "https://localhost:6443", cluster: dict[str, Any] | None = None, **user: Any) -> Any:
    """The content of a kubeconfig with one context, ``here``; keyword arguments are the fields of its user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "one", "cluster": {"server": server} | (cluster or {})}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        "users": [{"name": "me", "user": user}],
    }


def save(directory: Path, content: Any, name: str = "kubeconfig") -> str:
    path = directory / name
    path.write_text(yaml.safe_dump(content))
    return str(path)


def exec_plugin(directory: Path, status: dict[str, Any]) -> dict[str, Any]:
    """An exec credential plugin that returns ``token-1`` on its first run, ``token-2`` on the second, and so on."""
    counter, script = directory / "runs", directory / "plugin.sh"
    fields = "".join(f', "{key}": "{value}"' for key, value in status.items())
    script.write_text(
        "#!/bin/sh\n"
        f"echo run >> {counter}\n"
        f"n=$(wc -l < {counter})\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\", '
        f'\\"status\\": {{\\"token\\": \\"token-$n\\"{fields.replace(chr(34), chr(92) + chr(34))}}}}}"\n'
    )
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": [str(script)]}


def make_certificate(directory: Path, name: str, *, authority: str = "") -> tuple[str, str]:
    """A certificate and key for ``name``, signed by ``authority`` of the same directory or else self-signed."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    request += ["-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
    if authority:
        request += ["-CA", str(directory / f"{authority}.crt"), "-CAkey", str(directory / f"{authority}.key")]
        request += ["-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run(request, check=True, capture_output=True)
    return str(certificate), str(key)
