"""Tables of papers, one command each: the published numbers, those measured here, and the difference with a tolerance.

:mod:`.paper` is what all have in common. A number is in a table only if it was published, with its source; where none
can be had, there is no row.
"""
