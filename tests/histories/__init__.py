"""Histories of the embedded API server under faults, and whether a correct server can have produced them.

Concurrent clients write, read and watch the same few objects and record when each request began, when it was answered
and with what (:mod:`.clients`, :mod:`.history`), while the server is killed, its disk fills up or hangs, its clock
jumps and the end of its log is torn (:mod:`.server_process`, :mod:`.crashes`). Afterwards the history is checked:

- :mod:`.linearizability`: the answers about each object are those of some sequential order of the requests;
- :mod:`.watch_streams`: a watcher sees every change after its resourceVersion once and in order, or gets 410, lists are
  snapshots, and resourceVersions never return, whatever happens to the process in between.

There are two ways to make histories. ``python -m tests.histories --minutes 10`` runs processes with real kills, files
and connections. :mod:`.simulated_server` has the same server in virtual time, where every run of a seed is the same; a
few seeds are part of the tests.
"""
