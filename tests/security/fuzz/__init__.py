"""Fuzzing of everything that parses foreign bytes: files, request bodies, responses and expressions.

:mod:`readers` lists what is fuzzed, with its seeds and the errors it may raise. ``python -m tests.security.fuzz`` runs
the readers under the guidance of coverage, for a given time; ``tests/security/test_fuzz.py`` runs a fixed
number of mutations of the seeds (:mod:`mutations`), and what was found before (:mod:`findings`). Both run a reader in a
process of its own with limits of memory and CPU time (:mod:`contained`), so that a signal, running out of memory and an
endless loop count as failures.
"""
