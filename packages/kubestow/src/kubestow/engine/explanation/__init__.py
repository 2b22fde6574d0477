"""Explanations: why a pod is on its node or on none, and the least changes that would make it fit.

    explanation = explain(Cluster.load("dump.json"), "default/web-1")
    explanation                            # tables in a notebook
    explanation.compare("node-1", "node-2")

:mod:`.evaluated_nodes` holds what all plugins returned for all nodes about a pod that
:class:`~kubestow.engine.pipeline.offline_scheduler.OfflineScheduler` decided about; :mod:`.explain` makes an
:mod:`.explanation` of both. :mod:`.remedies` estimates what each node lacks, and :mod:`.counterfactuals` makes
:mod:`.changes` of it, which the pipeline verifies.
"""
