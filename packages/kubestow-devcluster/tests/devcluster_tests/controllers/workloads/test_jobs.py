"""Jobs run pods until enough of them have succeeded or too many have failed."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import PODS
from devcluster_tests.scenarios import JOBS, Cluster, run_scenario

pytestmark = pytest.mark.usefixtures("no_errors_logged")


def job(*, duration: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": {"kubestow.dev/duration": duration}} if duration else {}
    template = {
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]},
    }
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    status: dict[str, Any] = (await cluster.get(f"{JOBS}/j")).json["status"]
    return status


async def condition_reasons(cluster: Cluster) -> dict[str, str]:
    return {one["type"]: one["reason"] for one in (await status(cluster)).get("conditions", ())}


async def fail_running(cluster: Cluster) -> int:
    """Fail every running pod; how many there were."""
    running = [pod for pod in await cluster.pods() if pod["status"]["phase"] == "Running"]
    for pod in running:
        await cluster.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
    return len(running)


def test_a_complete_job_has_removed_the_finalizers_of_its_pods() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job())
        await cluster.pass_time(3)
        current = await status(cluster)
        assert (current["succeeded"], current.get("active"), current["ready"]) == (1, None, 0)
        assert await condition_reasons(cluster) == dict.fromkeys(
            ("SuccessCriteriaMet", "Complete"), "CompletionsReached"
        )
        assert current["startTime"] < current["completionTime"]
        pods = await cluster.pods()
        assert [one["status"]["phase"] for one in pods] == ["Succeeded"]
        assert "finalizers" not in pods[0]["metadata"]
        assert await cluster.reasons() == ["SuccessfulCreate", "Completed"]

    run_scenario(scenario)


def test_the_number_of_active_pods_does_not_exceed_the_parallelism() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(completions=5, parallelism=2))
        for _ in range(80):
            await cluster.pass_time(0.1)
            assert sum(pod["status"]["phase"] in ("Pending", "Running") for pod in await cluster.pods()) <= 2
        assert (await status(cluster))["succeeded"] == 5 == len(await cluster.pods())

    run_scenario(scenario)


def test_a_job_of_pause_containers_does_not_end() -> None:
    async def scenario(cluster: Cluster) -> None:
        new = job()
        new["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.10"
        await cluster.post(JOBS, new)
        await cluster.pass_time(5)
        assert (await status(cluster))["active"] == 1

    run_scenario(scenario)


def test_the_pods_of_an_indexed_job_can_fail_by_their_index() -> None:
    async def scenario(cluster: Cluster) -> None:
        new = job(completions=4, parallelism=4, completionMode="Indexed", backoffLimitPerIndex=0)
        new["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "exit $((JOB_COMPLETION_INDEX % 2))"]
        await cluster.post(JOBS, new)
        await cluster.pass_time(10)
        found = await status(cluster)
        assert (found["completedIndexes"], found["failedIndexes"]) == ("0,2", "1,3")

    run_scenario(scenario)


def test_an_indexed_job_has_one_success_per_index() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(completions=3, parallelism=3, completionMode="Indexed"))
        await cluster.pass_time(4)
        assert (await status(cluster))["completedIndexes"] == "0-2"
        key = "batch.kubernetes.io/job-completion-index"
        pods = await cluster.pods()
        assert sorted(one["metadata"]["labels"][key] for one in pods) == ["0", "1", "2"]
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{key}']"}}
        variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
        assert pods[0]["spec"]["containers"][0]["env"][-1] == variable

    run_scenario(scenario)


def test_an_index_that_fails_is_run_again_before_later_ones() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", completions=3, parallelism=2, completionMode="Indexed"))
        await cluster.pass_time(2)
        first = next(pod for pod in await cluster.pods() if pod["spec"]["hostname"] == "j-0")
        await cluster.patch(f"{PODS}/{first['metadata']['name']}/status", {"status": {"phase": "Failed"}})
        await cluster.pass_time(15)
        running = [pod for pod in await cluster.pods() if pod["status"]["phase"] == "Running"]
        assert sorted(pod["spec"]["hostname"] for pod in running) == ["j-0", "j-1"]
        assert "completedIndexes" not in await status(cluster)

    run_scenario(scenario)


def test_a_pod_without_a_completion_index_does_not_count_as_a_success() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", completions=2, parallelism=1, completionMode="Indexed"))
        await cluster.pass_time(2)
        (pod,) = await cluster.pods()
        place = f"{PODS}/{pod['metadata']['name']}"
        await cluster.patch(place, {"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": None}}})
        await cluster.patch(f"{place}/status", {"status": {"phase": "Succeeded"}})
        await cluster.pass_time(3)
        assert (await status(cluster)).get("succeeded", 0) == 0
        assert [pod["spec"]["hostname"] for pod in await cluster.pods() if pod["status"]["phase"] == "Running"] == [
            "j-0"
        ]

    run_scenario(scenario)


def test_failed_pods_are_replaced_with_back_off_up_to_the_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", backoffLimit=1))
        await cluster.pass_time(1)
        assert await fail_running(cluster) == 1
        await cluster.pass_time(5)
        assert len(await cluster.pods()) == 1, "the back-off is ten seconds"
        await cluster.pass_time(7)
        assert await fail_running(cluster) == 1
        await cluster.pass_time(2)
        assert (await condition_reasons(cluster))["Failed"] == "BackoffLimitExceeded" and (await status(cluster))[
            "failed"
        ] == 2

    run_scenario(scenario)


def test_a_job_past_its_active_deadline_fails_and_its_pods_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", activeDeadlineSeconds=30))
        await cluster.pass_time(20)
        assert (await status(cluster))["active"] == 1
        await cluster.pass_time(15)
        assert (await condition_reasons(cluster))["Failed"] == "DeadlineExceeded"
        assert await cluster.pods() == []

    run_scenario(scenario)


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(suspend=True))
        await cluster.pass_time(2)
        assert await cluster.pods() == [] and await condition_reasons(cluster) == {"Suspended": "JobSuspended"}
        await cluster.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        await cluster.pass_time(4)
        assert (await status(cluster))["succeeded"] == 1

    run_scenario(scenario)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_the_pods_of_a_deleted_job_are_deleted(propagation: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", completions=2, parallelism=2))
        await cluster.pass_time(2)
        await cluster.delete(f"{JOBS}/j", {"propagationPolicy": propagation})
        await cluster.pass_time(3)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    run_scenario(scenario)


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(ttlSecondsAfterFinished=60))
        await cluster.pass_time(30)
        assert (await condition_reasons(cluster))["Complete"]
        await cluster.pass_time(40)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    run_scenario(scenario)


# Policies


def failing_job(exit_codes: str, **spec: Any) -> dict[str, Any]:
    """A job whose pods fail with these exit codes by run."""
    new = job(**spec)
    new["spec"]["template"]["metadata"] = {"annotations": {"kubestow.dev/exit-code": exit_codes}}
    return new


def on_exit_codes(action: str, *values: int, operator: str = "In") -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(managedBy="example.com/queue"))
        await cluster.pass_time(3)
        assert await cluster.pods() == [] and not await status(cluster)

    run_scenario(scenario)


def test_a_pod_failure_policy_fails_the_job_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        policy = {"rules": [on_exit_codes("Count", 1), on_exit_codes("FailJob", 42)]}
        await cluster.post(JOBS, failing_job("42", podFailurePolicy=policy))
        await cluster.pass_time(5)
        conditions = {one["type"]: one for one in (await status(cluster))["conditions"]}
        (pod,) = await cluster.pods()
        assert conditions["Failed"]["reason"] == conditions["FailureTarget"]["reason"] == "PodFailurePolicy"
        assert conditions["Failed"]["message"] == (
            f"Container c for pod default/{pod['metadata']['name']} failed with exit code 42 matching FailJob rule at"
            " index 1"
        )

    run_scenario(scenario)


def test_ignored_failures_do_not_count_towards_the_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
        await cluster.post(JOBS, job(duration="1h", backoffLimit=0, podFailurePolicy=policy))
        await cluster.pass_time(2)
        (pod,) = await cluster.pods()
        name = pod["metadata"]["name"]
        await cluster.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}})
        await cluster.pass_time(5)
        current = await status(cluster)
        assert (current["active"], current.get("failed", 0), current["terminating"]) == (1, 0, 0)
        assert "conditions" not in current

    run_scenario(scenario)


def test_each_index_has_its_own_back_off_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        indexed = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
        await cluster.post(JOBS, job(duration="20s", **indexed))
        for _ in range(2):
            await cluster.pass_time(2)
            for pod in await cluster.pods():
                index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
                if index == "1" and pod["status"]["phase"] == "Running":
                    await cluster.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
            await cluster.pass_time(12)
        await cluster.pass_time(20)
        current = await status(cluster)
        assert (current["failedIndexes"], current["completedIndexes"], current["failed"]) == ("1", "0", 2)
        assert (await condition_reasons(cluster))["Failed"] == "FailedIndexes"

    run_scenario(scenario)


def test_a_job_ends_when_too_many_indexes_have_failed() -> None:
    async def scenario(cluster: Cluster) -> None:
        indexed = {"completions": 5, "parallelism": 5, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
        await cluster.post(JOBS, failing_job("1", maxFailedIndexes=2, **indexed))
        await cluster.pass_time(5)
        assert (await condition_reasons(cluster))["Failed"] == "MaxFailedIndexesExceeded"

    run_scenario(scenario)


def test_a_rule_can_fail_an_index_before_its_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        indexed = {"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 5}
        policy = {"rules": [on_exit_codes("FailIndex", 0, operator="NotIn")]}
        await cluster.post(JOBS, failing_job("3", podFailurePolicy=policy, **indexed))
        await cluster.pass_time(5)
        assert len(await cluster.pods()) == 1
        assert (await condition_reasons(cluster))["Failed"] == "FailedIndexes"

    run_scenario(scenario)


@pytest.mark.parametrize("rule", [{"succeededIndexes": "0"}, {"succeededCount": 1}])
def test_a_success_policy_ends_a_job_early(rule: dict[str, Any]) -> None:
    async def scenario(cluster: Cluster) -> None:
        indexed = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
        await cluster.post(JOBS, job(duration="1h", successPolicy={"rules": [rule]}, **indexed))
        await cluster.pass_time(2)
        for pod in await cluster.pods():
            if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0":
                await cluster.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})
        await cluster.pass_time(5)
        assert await condition_reasons(cluster) == dict.fromkeys(("SuccessCriteriaMet", "Complete"), "SuccessPolicy")
        assert len(await cluster.pods()) == 1

    run_scenario(scenario)


@pytest.mark.parametrize(("policy", "replaced_at_once"), [("TerminatingOrFailed", True), ("Failed", False)])
def test_the_replacement_policy_says_when_a_terminating_pod_is_replaced(policy: str, replaced_at_once: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        slow = job(duration="1h", podReplacementPolicy=policy)
        slow["spec"]["template"]["metadata"]["annotations"]["kubestow.dev/shutdown"] = "20s"
        await cluster.post(JOBS, slow)
        await cluster.pass_time(2)
        (pod,) = await cluster.pods()
        await cluster.delete(f"{PODS}/{pod['metadata']['name']}")
        await cluster.pass_time(15)
        current = await status(cluster)
        assert (current.get("active", 0) == 1) == replaced_at_once and current["terminating"] == 1
        await cluster.pass_time(30)
        current = await status(cluster)
        assert (current["active"], current["terminating"]) == (1, 0)

    run_scenario(scenario)


def test_the_pods_of_a_job_that_is_deleted_without_options_stay() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h"))
        await cluster.pass_time(2)
        await cluster.delete(f"{JOBS}/j")
        await cluster.pass_time(3)
        (pod,) = await cluster.pods()
        assert await cluster.items(JOBS) == [] and "ownerReferences" not in pod["metadata"]

    run_scenario(scenario)
