"""Storage: objects by key with resourceVersions and a watch history (``store``), persisted in SQLite when asked for.

``database`` is the file, ``group_commit`` the policy: no response is sent before the writes it depends on are on disk.
"""
