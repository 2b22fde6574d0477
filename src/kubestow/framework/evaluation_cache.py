"""The evaluations of a profile, one per shape of pods, each with the plugins that such pods concern.

What a plugin has nothing to say about it is not asked about. Whom a pod concerns is settled when its shape is first
met, and again when something happens that may change that: the first pod that is to be kept apart from others makes
InterPodAffinity speak of those others, a service makes PodTopologySpread speak of its pods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.evaluation import Evaluation
from kubestow.framework.interface import MAX_SCORE, Plugin, PreScorePlugin, ScorePlugin
from kubestow.framework.result_cache import Answers, BoundPlugin, Round
from kubestow.framework.runtime import FrameworkRuntime

__all__ = ["Evaluations"]

#: Remembered evaluations may fill about this many bytes …
_BUDGET = 64 * 2**20
#: … of which one that shares nothing takes about this many per node.
_BYTES_PER_NODE = 120
_FEWEST = 32


@dataclass(slots=True)
class _Known:
    """The evaluation for a shape, whom it concerned when that was last looked at, and when that was."""

    evaluation: Evaluation
    concerned: frozenset[Plugin]
    epoch: int


class Evaluations:
    """The evaluations of a profile by shape, the least recently used forgotten first."""

    def __init__(self, runtime: FrameworkRuntime) -> None:
        self._runtime = runtime
        plugins = runtime.plugins
        self._pre_filters, self._filters, self._scores = plugins.pre_filter, plugins.filter, plugins.score
        scoring: set[Plugin] = {plugin for plugin, _ in self._scores}
        self._preparing = [plugin for plugin in plugins.pre_score if plugin not in scoring]
        everyone: set[Plugin] = {*self._pre_filters, *self._filters, *plugins.pre_score, *scoring}
        self._bound_plugins = {
            plugin: BoundPlugin(
                plugin,
                runtime,
                runs_pre_filter=plugin in self._pre_filters,
                runs_pre_score=plugin in plugins.pre_score,
            )
            for plugin in everyone
        }
        #: Those that do not speak of every pod.
        self._choosing = [plugin for plugin in everyone if type(plugin).applies_to is not Plugin.applies_to]
        #: The journal bits of events after which pods may concern others, and how often there were such.
        self._turning = 0
        for plugin in self._choosing:
            for event in plugin.applicability_events:
                self._turning |= event.bits
        self._round, self._epoch = Round(), 0
        self._by_shape: OrderedDict[Shape, _Known] = OrderedDict()
        self._answers: WeakValueDictionary[tuple[Plugin, Hashable], Answers] = WeakValueDictionary()

    @property
    def highest_total(self) -> int:
        """The most that all scores of a node can add up to."""
        return sum(weight for _, weight in self._scores) * MAX_SCORE

    @property
    def filters_anything(self) -> bool:
        """Whether any plugin may refuse a node."""
        return bool(self._pre_filters or self._filters)

    def of(self, cluster: Cluster, pod: PodInfo) -> Evaluation:
        """The evaluation for pods of this shape. Raises PluginError when a plugin cannot be asked about it."""
        if self._round.news(cluster) & self._turning:
            self._epoch += 1
        self._round.note(cluster)
        shape = pod.shape
        known = self._by_shape.get(shape)
        if known is None:
            known = self._by_shape[shape] = self._new(pod, self._concerned(pod))
            self._forget_some(cluster)
        else:
            self._by_shape.move_to_end(shape)
            if known.epoch != self._epoch:
                known = self._by_shape[shape] = self._looked_at_again(known, pod)
        return known.evaluation

    def _concerned(self, pod: PodInfo) -> frozenset[Plugin]:
        """Those of the choosing plugins that have something to say of a pod."""
        return frozenset(plugin for plugin in self._choosing if self._runtime.plugin_applies_to(plugin, pod))

    def _looked_at_again(self, known: _Known, pod: PodInfo) -> _Known:
        concerned = self._concerned(pod)
        if concerned != known.concerned:
            return self._new(pod, concerned)
        known.epoch = self._epoch
        return known

    def _forget_some(self, cluster: Cluster) -> None:
        most = max(_FEWEST, _BUDGET // (_BYTES_PER_NODE * max(1, len(cluster.nodes))))
        while len(self._by_shape) > most:
            self._by_shape.popitem(last=False)

    def _new(self, pod: PodInfo, concerned: frozenset[Plugin]) -> _Known:
        own: dict[Plugin, Answers] = {}
        silent = set(self._choosing) - concerned

        def answers(plugin: Plugin) -> Answers:
            if plugin not in own:
                own[plugin] = self._shared_answers(plugin, pod)
            return own[plugin]

        scores = [(p, weight) for p, weight in self._scores if p not in silent or self._cannot_skip(p)]
        evaluation = Evaluation(
            [answers(plugin) for plugin in self._pre_filters if plugin not in silent],
            [answers(plugin) for plugin in self._filters if plugin not in silent],
            [(answers(plugin), weight) for plugin, weight in scores],
            [answers(plugin) for plugin in self._preparing if plugin not in silent],
            self._runtime,
        )
        return _Known(evaluation, concerned, self._epoch)

    def _cannot_skip(self, plugin: ScorePlugin) -> bool:
        """It is PreScore that skips scoring, so a plugin whose PreScore is disabled scores every pod."""
        return isinstance(plugin, PreScorePlugin) and self._bound_plugins[plugin].pre_score_plugin is None

    def _shared_answers(self, plugin: Plugin, pod: PodInfo) -> Answers:
        signature = self._runtime.plugin_signature(plugin, pod)
        if signature is None:
            return Answers(self._bound_plugins[plugin], remembered=False)
        shared = self._answers.get((plugin, signature))
        if shared is None:
            shared = Answers(self._bound_plugins[plugin], remembered=True)
            self._answers[plugin, signature] = shared
        return shared
