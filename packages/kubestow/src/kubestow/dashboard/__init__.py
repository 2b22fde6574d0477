"""The dashboard: the data behind its page, the shared event stream, and the page itself.

    dashboard        composes the modules below for one scheduler
    event_stream     one encoded snapshot or delta per tick, shared by all viewers
    sections         the parts of the stream: nodes, queue, decisions, gangs, reports
    queue_pages      pods in the queue as plain data, page by page, and searched
    plugin_reports   what plugins report about themselves, such as queues of jobs
    details          one pod: its attempts, every plugin's results on every node, preemption candidates; one node:
                     its pods, and what is free
    counterfactual_searches
                     the changes that would make a pod fit, searched for in a process of its own

Nothing here serves HTTP (see :mod:`kubestow.serving`) or changes what the scheduler does. All of it runs on the
scheduler's event loop, so every response is a consistent view between two cycles.
"""
