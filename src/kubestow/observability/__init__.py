"""What an operator sees of a scheduler: metrics, the log, and what became of a pod's last attempt.

    instruments   counters and histograms that cost next to nothing to move
    metrics       every metric there is
    recording     the observer that moves them
    readings      what is read at a scrape instead: the queue, the cluster, features
    pod_resources the metrics of /metrics/resources
    attempts      the observer that remembers what was said of each pod
    narration     the observer that writes the log
    logs          what a line of the log looks like: klog's text, or JSON
    observability all of it put together

Nothing here serves HTTP, see :mod:`kubestow.serving`; nothing here has a say in what is decided.
"""
