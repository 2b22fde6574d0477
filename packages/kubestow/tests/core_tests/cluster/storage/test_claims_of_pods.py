"""Which claims a pod waits for: those that its volumes name, and those of its ephemeral volumes."""

from __future__ import annotations

import pytest

from kubestow.cluster.pods.shapes import Shapes
from kubestow.cluster.storage.pod_volumes import is_claim_named, is_claim_of_pod
from kubestow.testing import pod
from kubestow.testing.storage import claim, mounting


@pytest.mark.parametrize(
    ("name", "namespace", "named", "owned"),
    [
        ("data", "default", True, True),
        ("data", "other", False, False),
        ("web-scratch", "default", False, True),
        ("web-scratch", "other", False, False),
        ("scratch", "default", False, False),
        ("web-", "default", False, False),
        ("db-scratch", "default", False, False),
        ("unrelated", "default", False, False),
    ],
)
def test_an_event_of_a_claim_helps_the_pods_that_use_it(name: str, namespace: str, named: bool, owned: bool) -> None:
    info = Shapes().info(pod("web", spec=mounting("data", ephemeral=["scratch"])))
    observed = claim(name, namespace=namespace)
    assert is_claim_named(info, None, observed) is named
    assert is_claim_of_pod(info, None, observed) is owned
