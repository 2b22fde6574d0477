"""docs/kubectl.md: its commands print what it shows, run by the real kubectl on ``kubestow up``."""

from __future__ import annotations

import re
from pathlib import Path

from devcluster_tests.cli.up_process import up
from devcluster_tests.kubectl import NEEDS_KUBECTL
from tests.cli.test_kubectl_plugins import PLUGINS, Kubectl, install

pytestmark = NEEDS_KUBECTL

PAGE = (Path(__file__).parents[2] / "docs" / "kubectl.md").read_text(encoding="utf-8")
PENDING, POD = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def transcript() -> dict[str, str]:
    """The commands that are shown with what they print."""
    blocks = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
    parts = (part.partition("\n") for part in blocks.split("$ ")[1:])
    return {command: output for command, _, output in parts if output}


def words(text: str) -> list[list[str]]:
    """The words of each line; names with random parts end with dashes, and columns are as wide as their words."""
    named = re.sub(r"shop/(train|web)-[\w-]+", r"shop/\1-", text)
    return [re.sub(r"\s+", " ", line).split() for line in named.splitlines()]


async def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    install(tmp_path / "bin")
    pending, pod = tmp_path / "pending.yaml", tmp_path / "pod.yaml"
    pending.write_text(PENDING)
    pod.write_text(POD)
    async with up(tmp_path, "--nodes", "3") as cluster:
        kubectl = Kubectl(tmp_path, cluster.kubeconfig)
        await kubectl("apply", "-f", str(pending))
        for name, field, value in (("job/train", "active", 4), ("deployment/web", "replicas", 2)):
            await kubectl("wait", name, "-n", "shop", f"--for=jsonpath={{.status.{field}}}={value}", "--timeout=600s")
        shown = transcript()
        assert list(shown) == ["kubectl why -A", "kubectl why job/train -n shop", "kubectl capacity -f pod.yaml"]
        for command, expected in shown.items():
            arguments = command.removeprefix("kubectl ").replace("pod.yaml", str(pod)).split()
            out, _ = await kubectl(*arguments)
            assert words(out) == words(expected), command


def test_all_plugins_are_listed() -> None:
    listed = set(re.findall(r"^\| `kubectl ([\w-]+)", PAGE, re.MULTILINE))
    assert sorted(f"kubectl-{name.replace('-', '_')}" for name in listed) == PLUGINS
