"""Every namespace has a default service account and the root CA."""

from __future__ import annotations

import asyncio

from devcluster_tests.scenarios import Cluster, run_scenario


def test_a_namespace_gets_its_default_service_account_and_root_ca_and_keeps_them() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        await asyncio.sleep(1)
        account, ca = (
            "/api/v1/namespaces/team/serviceaccounts/default",
            "/api/v1/namespaces/team/configmaps/kube-root-ca.crt",
        )
        assert (await cluster.get(account)).status == 200
        assert (await cluster.get(ca)).json["data"] == {"ca.crt": ""}
        await cluster.delete(account)
        await cluster.patch(ca, {"data": {"ca.crt": "tampered"}})
        await asyncio.sleep(1)
        assert (await cluster.get(account)).status == 200
        assert (await cluster.get(ca)).json["data"] == {"ca.crt": ""}
        await cluster.delete("/api/v1/namespaces/team")
        await asyncio.sleep(60)
        assert (await cluster.get("/api/v1/namespaces/team")).status == 404

    run_scenario(scenario)
