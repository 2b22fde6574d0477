"""Answers about a cluster for assistants: questions as tools of the Model Context Protocol, bounded and as data."""
