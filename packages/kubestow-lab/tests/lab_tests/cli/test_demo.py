"""``kubestow demo`` on a small cluster."""

from __future__ import annotations

import json

import pytest

from kubestow.cli import main


def test_the_result_of_a_demo_is_data_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--nodes", "3", "--pods", "0", "-o", "json"])
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert (ended.value.code or 0, document["completed"], document["pending"]) == (0, True, [])
    assert (document["nodes"], document["nodesUsed"], document["placed"]) == (3, 0, 0)
    assert set(document["resources"]) >= {"cpu", "memory", "pods"}
    assert err.startswith("3 nodes and 0 pods like those of openb\n")
