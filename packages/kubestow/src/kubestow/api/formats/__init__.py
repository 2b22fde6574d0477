"""The formats of single values: quantities, durations, timestamps, integers, names, and YAML."""
