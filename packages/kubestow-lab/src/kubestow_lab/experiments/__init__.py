"""Experiments: policies on clusters and traces with several seeds, from one file.

:mod:`.experiment_file` is what the file says, :mod:`.runs` runs it, in parallel and resumable, into a folder with a
manifest, :mod:`.report` and :mod:`.plots` show what the folder holds.
"""
