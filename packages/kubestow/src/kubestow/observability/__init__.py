"""Metrics, logs and recent scheduling attempts of one scheduler.

    observability       composes the modules below, with the observer that writes the log
    instruments         counters, histograms and gauges that are cheap to update
    metrics             all metrics
    metrics_recorder    the observer that updates the metrics
    state_gauges        gauges computed at a scrape: queue, cache, feature gates; and those of /metrics/resources
    recent_attempts     the observer that keeps the most recent scheduling attempts of each pod, and their preemptions
    pod_states          where a pod is on its way to a node, in words
    logs                log formats: klog text and JSON
    tracing             the observer that records scheduling attempts as traces, and their export

Nothing here serves HTTP (see :mod:`kubestow.serving`) or influences decisions.
"""
