"""The explanation of a pod group: where its pods would go, or the certificate that there is no place for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubestow import gc_tuning
from kubestow.cluster.pods.pod_groups import PodGroupName
from kubestow.engine.explanation.plain_words import plain_words
from kubestow.engine.gangs.gang_search import Certificate, GangAnswer, GangSearch, SearchOptions
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, extenders_text, similar
from kubestow.errors import InputError
from kubestow.framework.gang import Gang
from kubestow.framework.profile import Profile
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow.scheduling.decision.result import Unschedulable

#: So many nodes, and so many topology domains without a placement, are listed.
_MOST_LISTED = 30


@dataclass(frozen=True, slots=True, repr=False)
class GroupExplanation(Displayed):
    """The answer for a pod group by name (``namespace/name``).

    ``rejections`` has the scheduler's words about the kinds of pods for which no node passes the filters.
    """

    name: str
    answer: GangAnswer
    rejections: dict[str, str]
    remarks: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The answer as data for JSON and YAML; amounts are in millicores, bytes or counts."""
        answer, members = self.answer, self.answer.gang.members
        result = "Placed" if answer.is_placed else "Impossible" if answer.is_impossible else "Undecided"
        return {
            "kind": "PodGroupExplanation",
            "podGroup": self.name,
            "minCount": answer.gang.min_count,
            "pods": len(members.pods),
            "podsWithNode": len(members.placed),
            "needed": answer.needed,
            "result": result,
            "foundBy": answer.found_by,
            "domain": answer.domain,
            "assignments": [{"pod": pod.key, "node": node_name} for pod, node_name in answer.assignments],
            "certificates": [_document(each) for each in answer.certificates],
            "rejections": dict(self.rejections),
            "undecided": answer.undecided,
            "preference": answer.preference,
            "passedOver": [
                {
                    "terms": each.terms,
                    "certificates": [_document(certificate) for certificate in each.certificates],
                    "undecided": each.undecided,
                }
                for each in answer.passed_over
            ],
            "remarks": list(self.remarks),
        }

    def blocks(self) -> Iterator[Block]:
        """What the answer is, then the nodes or what is missing."""
        answer = self.answer
        if answer.is_placed:
            yield from self._placement()
        elif answer.undecided:
            yield Paragraph(f"{self.name}: not known whether there is a placement: {answer.undecided}")
        else:
            yield from self._impossible()
        if not answer.is_impossible:
            for each in answer.passed_over:
                yield Paragraph(each.text, note=True)

    def _placement(self) -> Iterator[Block]:
        answer = self.answer
        where = f" in {answer.domain}" if answer.domain else ""
        where += f", as it prefers: {answer.preference}" if answer.preference else ""
        pods, nodes = counted(len(answer.assignments), "pod"), Counter(name for _, name in answer.assignments)
        if not answer.assignments:
            yield Paragraph(f"{self.name}: enough of its pods have a node")
            return
        yield Paragraph(f"{self.name}: fits{where}, {pods} on {counted(len(nodes), 'node')}")
        if answer.found_by == "search":
            yield Paragraph(
                "kube-scheduler does not find it, because it takes the best node for one pod after the other",
                note=True,
            )
        table = Table("node", "pods", right=("pods",))
        for name, count in sorted(nodes.items())[:_MOST_LISTED]:
            table.add(name, f"{count:,}")
        if len(nodes) > _MOST_LISTED:
            table.add(f"… {counted(len(nodes) - _MOST_LISTED, 'more node')}", "")
        yield table

    def _impossible(self) -> Iterator[Block]:
        certificates = sorted(self.answer.certificates, key=lambda each: -each.most)
        if not certificates:
            yield Paragraph(f"{self.name}: fits nowhere, because no topology domain exists for it")
            return
        nearest = certificates[0]
        if len(self.answer.pods) < nearest.needed:
            there = counted(len(self.answer.pods), "pod without a node exists", "pods without a node exist")
            yield Paragraph(f"{self.name}: {nearest.needed:,} of its pods still need a node, and {there}")
            return
        at_most = nearest.text
        if nearest.domain:
            at_most += f" in one topology domain, {nearest.domain} of {len(certificates):,}"
        yield Paragraph(f"{self.name}: no placement exists: {at_most}")
        for shortage in nearest.shortages:
            yield Paragraph(shortage.text)
        if len(nearest.shortages) > 1:
            yield Paragraph("all of these together; without any one of them there might be a placement", note=True)
        for name, number in nearest.passing.items():
            if not number:
                yield Paragraph(
                    f"no node passes the filters for {name}" + (f" in {nearest.domain}" if nearest.domain else "")
                )
                for sentence in plain_words(self.rejections.get(name, "")):
                    yield Paragraph(sentence, note=True)
        if len(certificates) > 1:
            table = Table("domain", "at most", "because of", right=("at most",))
            for each in certificates[:_MOST_LISTED]:
                table.add(
                    each.domain, f"{each.most:,}", ", ".join(one.constraint for one in each.shortages) or "node filters"
                )
            if len(certificates) > _MOST_LISTED:
                table.add(f"… {counted(len(certificates) - _MOST_LISTED, 'more domain')}", "", "")
            yield table


def _document(certificate: Certificate) -> dict[str, Any]:
    return {
        "domain": certificate.domain,
        "needed": certificate.needed,
        "most": certificate.most,
        "constraints": [
            {"constraint": each.constraint}
            | ({"needed": each.needed, "free": each.free, "room": each.room} if each.needed else {})
            for each in certificate.shortages
        ],
        "passingNodes": dict(certificate.passing),
    }


def explain_group(
    cluster: ClusterObjects, name: str, options: SchedulerOptions, search: SearchOptions | None = None
) -> GroupExplanation:
    """Explain the pod group that is called ``namespace/name``.

    Its pods without a node are placed beside all pods that have one. Raises InputError if no pod is in such a group,
    and without OR-Tools unless kube-scheduler finds a placement; ConfigurationError and PluginError.
    """
    with gc_tuning.paused():
        scheduler = OfflineScheduler(cluster, options)
        profile, gang = _find(cluster, scheduler, name)
        answer = GangSearch(scheduler.cache, profile, search).find(gang)
        rejections: dict[str, str] = {}
        for certificate in answer.certificates:
            for kind, number in certificate.passing.items():
                if not number and kind not in rejections:
                    first = kind.partition(" ")[0]
                    pod = next(each for each in answer.pods if each.key == first)
                    decision = scheduler.pipeline.decide_by_plugins(pod)
                    rejections[kind] = decision.message if isinstance(decision, Unschedulable) else ""
        remarks = scheduler.absent
        if scheduler.extenders:
            remarks = (*remarks, extenders_text(scheduler.extenders))
        return GroupExplanation(name, answer, rejections, tuple(remarks))


def _find(cluster: ClusterObjects, scheduler: OfflineScheduler, name: str) -> tuple[Profile, Gang]:
    """The gang of a name, with its profile."""
    known: set[str] = set()
    for pod in cluster.pods:
        profile = scheduler.profiles.get(pod.spec.scheduler_name)
        gang = None if profile is None else profile.gangs.gang_of(scheduler.cache.shapes.info(pod))
        if profile is None or gang is None:
            continue
        found = gang.name
        key = f"{found.namespace}/{found.name}" if isinstance(found, PodGroupName) else str(found)
        if key == name:
            return profile, gang
        known.add(key)
    problem = "no pod of the cluster is in such a group"
    if not known and not any(profile.runtime.plugins.gang_source for profile in scheduler.profiles.values()):
        problem = "no profile schedules pod groups; enable GangScheduling, for Kubernetes' groups with its feature gate"
    raise InputError(f"podgroup {name}", problem + similar(name, known))
