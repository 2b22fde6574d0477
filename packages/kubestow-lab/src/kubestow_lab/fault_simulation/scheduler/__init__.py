"""A simulated scheduler process with its clock, its faulty plugin and its faulty extender."""
