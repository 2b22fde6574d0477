"""The container image: ``build`` makes it without root and without a daemon, ``smoke`` uses it."""
