"""The queues of a file: as the args of the plugin have them, or objects of other projects that mean about the same.

Queue objects of Volcano and kube-batch, and ElasticQuotas of CapacityScheduling, are translated into queues. What has
no equal here is a difference, which is logged when the plugin is made; ``python -m
kubestow_contrib.queues.queues_file FILE`` prints the queues with the differences as comments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.api.formats.yaml_documents import yaml_documents
from kubestow.api.meta import convert, without_nulls
from kubestow.errors import InputError, InvalidObject
from kubestow.files import read_file
from kubestow.reports.text import as_yaml
from kubestow_contrib.capacity_scheduling import ElasticQuota
from kubestow_contrib.queues.configuration import Amount, JobQueuesArgs, QueueArgs, QueuesFile
from kubestow_contrib.volcano.queues import DEFAULT_QUEUE, ROOT_QUEUE, Queue

Object = Mapping[str, Any]

_VOLCANO, _KUBE_BATCH = "scheduling.volcano.sh", "scheduling.incubator.k8s.io"
#: The labels and annotations by which pods of Volcano's Jobs, and bare pods, name their queue.
_VOLCANO_KEYS = ("volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
_ELASTIC_QUOTAS = "scheduling.x-k8s.io"


@dataclass(frozen=True, slots=True)
class Translation:
    """Queues that mean about what objects of another project mean, and what differs: ``(object, text)``.

    The object is "" for what differs for all.
    """

    file: QueuesFile
    differences: Sequence[tuple[str, str]] = ()


def with_queues_file(args: JobQueuesArgs, report: Callable[[str], None] = lambda difference: None) -> JobQueuesArgs:
    """The args with what ``queues_file`` has, if any; differences to other projects are reported. Raises InputError."""
    if not args.queues_file:
        return args
    path = Path(args.queues_file)
    if args.queues or args.flavors:
        raise InputError("args.queuesFile", "excludes args.queues and args.flavors")
    found = read_queues_file(path)
    for subject, text in found.differences:
        report(": ".join(filter(None, (subject, text))))
    read = found.file
    try:
        return msgspec.structs.replace(
            args,
            queues=read.queues,
            flavors=read.flavors,
            queue_keys=[*read.queue_keys, *args.queue_keys],
            namespace_queues={**read.namespace_queues, **args.namespace_queues},
            queues_file="",
        )
    except ValueError as error:
        raise InputError(str(path), str(error)) from None


def read_queues_file(path: Path) -> Translation:
    """The queues of a file in YAML or JSON. Raises InputError."""
    documents = [document.data for document in yaml_documents(read_file(path), str(path))]
    try:
        if len(documents) == 1 and "kind" not in documents[0]:
            return Translation(msgspec.convert(documents[0], QueuesFile))
        return translated(list(_objects(documents)))
    except (InvalidObject, TypeError, ValueError) as error:
        raise InputError(str(path), str(error)) from None


def translated(objects: Sequence[Object]) -> Translation:
    """The queues that Queue objects, or ElasticQuotas, stand for; other objects are left out.

    Raises ValueError for an invalid object, and without any such.
    """
    queues = [each for each in objects if each["kind"] == "Queue" and _group(each) in (_VOLCANO, _KUBE_BATCH)]
    quotas = [each for each in objects if each["kind"] == "ElasticQuota" and _group(each) == _ELASTIC_QUOTAS]
    if bool(queues) == bool(quotas):
        raise ValueError("expected queues, or Queue objects of Volcano or kube-batch, or ElasticQuotas")
    if quotas:
        return _of_elastic_quotas([convert(ElasticQuota, without_nulls(each)) for each in quotas])
    return _of_volcano([convert(Queue, without_nulls(each)) for each in queues])


def _of_volcano(queues: Sequence[Queue]) -> Translation:
    """Volcano's queues: what they deserve is guaranteed, since it is lent and comes back by reclaim as well."""
    differences = [
        ("", "the order within a queue is by priority and age; Volcano's drf and sla are not applied"),
        (
            "",
            "what is not guaranteed is divided among siblings in whole units, and by past usage if enabled",
        ),
        ("", "pods of PodGroups name their queue by a label or annotation; that of their PodGroup is not read"),
    ]
    made = []
    for each in queues:
        name, spec = each.metadata.name, each.spec
        if name == ROOT_QUEUE:
            continue
        if each.status.state not in ("", "Open"):
            differences.append((f"Queue {name}", f"is {each.status.state}, and left out"))
            continue
        guaranteed = {**spec.guarantee.resource, **spec.deserved}
        if spec.guarantee.resource:
            differences.append(
                (f"Queue {name}", "lends its guarantee while it does not use it, and gets it back by reclaim")
            )
        if spec.reclaimable is False:
            differences.append(
                (f"Queue {name}", "its jobs can be reclaimed; only the annotation of pods prevents that")
            )
        amounts = [Amount(guaranteed=guaranteed, limit=spec.capability)] if guaranteed or spec.capability else []
        parent = "" if spec.parent == ROOT_QUEUE else spec.parent
        made.append(QueueArgs(name, parent, float(spec.weight), spec.priority, amounts))
    if DEFAULT_QUEUE not in (each.name for each in made):
        made.append(QueueArgs(DEFAULT_QUEUE))
    return Translation(QueuesFile(made, queue_keys=list(_VOLCANO_KEYS)), differences)


def _of_elastic_quotas(quotas: Sequence[ElasticQuota]) -> Translation:
    """A queue for each namespace with a quota: its minimum is guaranteed, its maximum the limit."""
    differences = [
        ("", "a job starts whole or waits; CapacityScheduling admits each pod by itself"),
        ("", "the sum of all minima bounds no queue; what is free is divided by weight, equal for all"),
        ("", "pods over their minimum are evicted as whole jobs, and only with preemption.reclaim"),
    ]
    made: dict[str, QueueArgs] = {}
    for each in sorted(quotas, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        namespace = each.metadata.namespace or "default"
        if namespace in made:
            differences.append((f"ElasticQuota {namespace}/{each.metadata.name}", "is not the first of its namespace"))
            continue
        amounts = [Amount(guaranteed=each.spec.min or {}, limit=each.spec.max or {})]
        made[namespace] = QueueArgs(namespace, amounts=amounts)
    return Translation(QueuesFile([*made.values()], namespace_queues={name: name for name in made}), differences)


def _objects(documents: Sequence[Any]) -> Iterator[Object]:
    """The objects of documents, those of lists too."""
    for document in documents:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            yield from document.get("items") or ()
        elif document is not None:
            yield document


def _group(obj: Object) -> str:
    return str(obj.get("apiVersion", "")).rpartition("/")[0]


def main() -> None:
    """Print the queues of a file as a file of queues."""
    if len(sys.argv) != 2:
        sys.exit("expected a file with Queue or ElasticQuota objects")
    try:
        found = read_queues_file(Path(sys.argv[1]))
    except InputError as error:
        sys.exit(str(error))
    for subject, text in found.differences:
        sys.stdout.write(f"# differs: {': '.join(filter(None, (subject, text)))}\n")
    sys.stdout.write(as_yaml(found.file))


if __name__ == "__main__":
    main()
