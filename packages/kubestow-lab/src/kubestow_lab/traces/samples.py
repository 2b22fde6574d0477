"""Small clusters and workloads with the statistics of a published trace, which ship with the package.

A sample needs no download. Its nodes are drawn from the node shapes of openb by systematic sampling, so each shape has
its share of the trace to within one node; they are the same for every seed. Its pods are drawn independently with the
frequencies of the 151 pod shapes of the list "default", all submitted one after another, until the GPUs that they
request are ``load`` times those of the cluster. Pods stay. So the only thing a policy decides is how the pods are
packed, and the pods that come last show how well it did.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.traces.loading import trace_objects
from kubestow_lab.traces.trace import ClusterTrace, PodTemplate, Task, TracedNode
from kubestow_lab.workloads import openb_shapes
from kubestow_lab.workloads.gpu import NodeShape, PodShape
from kubestow_lab.workloads.synthetic import sample


@dataclass(frozen=True, slots=True)
class Sample:
    """A number of nodes, and the requested GPUs as a multiple of theirs."""

    name: str
    nodes: int
    load: float

    def objects(self, seed: int) -> tuple[ClusterObjects, Arrivals]:
        """The cluster, and the pods that this seed draws."""
        nodes: list[NodeShape] = sample(openb_shapes.NODES, self.nodes, Random(f"{self.name}/nodes"))
        traced = [TracedNode(f"node-{number:04}", shape) for number, shape in enumerate(nodes)]
        shapes: list[PodShape] = list(openb_shapes.PODS)
        bounds = list(accumulate(openb_shapes.PODS.values()))
        random, requested = Random(f"{self.name}/{seed}/pods"), 0
        tasks: list[Task] = []
        wanted = self.load * 1000 * sum(node.gpus for node in nodes)
        while requested < wanted:
            [shape] = random.choices(shapes, cum_weights=bounds)
            requested += shape.gpus * shape.gpu_milli
            tasks.append(Task(f"pod-{len(tasks):05}", PodTemplate(shape), 0.0, None))
        return trace_objects(ClusterTrace(f"shapes and frequencies: {openb_shapes.ATTRIBUTION}", traced, tasks))


SAMPLES = {each.name: each for each in (Sample("openb-small", 100, 1.2), Sample("openb-full", 1213, 1.3))}
"""The samples by name."""


def find_sample(name: str, *, subject: str, place: str = "") -> Sample:
    """The sample with a name. Raises InputError, about the ``subject``."""
    if name not in SAMPLES:
        raise InputError(subject, f"no sample {name!r}, expected one of {', '.join(SAMPLES)}", place=place)
    return SAMPLES[name]
