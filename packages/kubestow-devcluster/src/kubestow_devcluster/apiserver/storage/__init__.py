"""Storage: objects by key with resourceVersions and a watch history (``store``), optionally persisted in SQLite.

``selectors`` select stored objects. ``database`` is the file, ``group_commit`` the policy: no response is sent before
the writes it depends on are on disk.
"""
