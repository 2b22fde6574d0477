"""Benchmarks of kubestow: ``python -m benchmarks`` lists the scenarios, RESULTS.md has results."""
