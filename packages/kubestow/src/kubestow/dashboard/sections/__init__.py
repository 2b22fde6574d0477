"""The parts of the stream: nodes, queue, decisions, gangs.

    section    the interface of a section, and sections that are sent as a whole
    nodes      the cluster: every node's labels, taints and amounts, and afterwards only the rows that have changed
    queue      the scheduling queue by place and by reason
    decisions  attempts per second, their latency and reasons
    gangs      gangs and their members

A section exists while there are viewers, and holds what they have been sent.
"""
