"""Write what krew installs the kubectl plugins from: for each an archive with a launcher, and its manifest.

    python -m tools.krew dist --uri https://example.com/releases/v0.1.0 --homepage https://example.com/kubestow

krew unpacks archives and cannot install Python packages. So the archive of a plugin has a shell script that runs
kubestow where it is installed, or else has uv or pipx run the version of the manifest. The plugins are the console
scripts ``kubectl-NAME`` of the distributions. The same version gives the same bytes; ``--uri`` is the folder from
which the archives will be downloaded.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import shlex
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kubestow.cli import COMMANDS
from kubestow.cli.kubectl_plugins import COMMAND_NAMES
from kubestow.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
_PREFIX = "kubectl-"

_LAUNCHER = """\
#!/bin/sh
# kubectl {name}: runs kubestow where it is installed, or else has uv or pipx run version {version}.
set -eu
if command -v kubestow >/dev/null 2>&1; then
    exec kubestow {command} "$@"
fi
if command -v uvx >/dev/null 2>&1; then
    exec uvx --quiet --from {requirement} {script} "$@"
fi
if command -v pipx >/dev/null 2>&1; then
    exec pipx run --quiet --spec {requirement} {script} "$@"
fi
echo "kubectl {name}: needs kubestow, uv or pipx; install it with: pip install {requirement}" >&2
exit 1
"""
_DESCRIPTION = """\
{summary}

It decides as kube-scheduler does, from what the API server holds, and only reads.
It needs kubestow, or uv or pipx to run it.
"""


@dataclass(frozen=True, slots=True)
class KubectlPlugin:
    """A plugin as kubectl calls it, such as ``explain-pod``, its console script, and the distribution that has it."""

    name: str
    script: str
    distribution: str

    @property
    def command(self) -> str:
        """The command of ``kubestow``."""
        return COMMAND_NAMES.get(self.name, self.name)

    @property
    def archive_name(self) -> str:
        """The name of the file that krew downloads."""
        return f"{self.script}-{VERSION}.tar.gz"

    def launcher(self) -> str:
        """The shell script that krew installs."""
        requirement = shlex.quote(f"{self.distribution}=={VERSION}")
        names = {"name": self.name, "command": self.command, "script": self.script}
        return _LAUNCHER.format(version=VERSION, requirement=requirement, **names)

    def archive(self) -> bytes:
        """The launcher and the licence; without times and owners, so that it is reproducible."""
        files = ((self.script, 0o755, self.launcher().encode()), ("LICENSE", 0o644, (ROOT / "LICENSE").read_bytes()))
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, mode, data in files:
                member = tarfile.TarInfo(name)
                member.mode, member.size = mode, len(data)
                archive.addfile(member, io.BytesIO(data))
        return gzip.compress(content.getvalue(), mtime=0)

    def manifest(self, archive: bytes, uri: str, homepage: str) -> dict[str, Any]:
        """The manifest of the plugin, of whose archive the bytes are given."""
        summary = COMMANDS[self.command].summary
        return {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": self.name},
            "spec": {
                "version": f"v{VERSION}",
                "homepage": homepage,
                "shortDescription": summary.removesuffix("."),
                "description": _DESCRIPTION.format(summary=summary),
                "platforms": [
                    {
                        "selector": {
                            "matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]
                        },
                        "uri": f"{uri.rstrip('/')}/{self.archive_name}",
                        "sha256": hashlib.sha256(archive).hexdigest(),
                        "bin": self.script,
                    }
                ],
            },
        }


def plugins() -> Iterator[KubectlPlugin]:
    """The plugins of all distributions."""
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        for script in project.get("scripts", {}):
            if script.startswith(_PREFIX):
                yield KubectlPlugin(script.removeprefix(_PREFIX).replace("_", "-"), script, project["name"])


def write(folder: Path, uri: str, homepage: str) -> list[Path]:
    """Write the archives and manifests of all plugins into a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for plugin in plugins():
        archive = plugin.archive()
        manifest = plugin.manifest(archive, uri, homepage)
        paths = folder / plugin.archive_name, folder / f"{plugin.name}.yaml"
        paths[0].write_bytes(archive)
        paths[1].write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
        written += paths
    return written


def main() -> None:
    """Write the files and name them."""
    parser = argparse.ArgumentParser(prog="tools.krew", description="Write archives and manifests for krew.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uri", required=True, help="The folder from which the archives will be downloaded.")
    parser.add_argument("--homepage", required=True)
    arguments = parser.parse_args()
    for path in write(arguments.folder, arguments.uri, arguments.homepage):
        print(path)  # noqa: T201


if __name__ == "__main__":
    main()
