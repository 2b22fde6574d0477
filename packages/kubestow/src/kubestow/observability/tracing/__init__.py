"""Traces: a trace per sampled scheduling attempt, with spans down to plugins and API requests, exported by OTLP.

    attempt_record    what is recorded of an attempt, and the spans that it stands for
    attempt_tracer    the observer that records sampled attempts
    record_exporter   the bounded queue of records, and the child process that exports their spans
    otlp_process      that process: OpenTelemetry's SDK and its exporters, which no other module imports

OpenTelemetry takes tens of microseconds per span, as much as the decision about a pod, and its exporters have threads
of their own. So the scheduler only notes what happened, and another process makes spans of it and exports them.
"""
