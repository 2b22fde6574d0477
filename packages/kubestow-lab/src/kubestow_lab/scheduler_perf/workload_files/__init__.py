"""Workload files: test cases, their operations and parameters, and the templates of objects."""
