"""Tables of papers, one command each: the published numbers, those measured here, and the difference with a tolerance.

:mod:`.paper` is what all have in common. A number is in a table only if it was published, with its source. Where a
paper only says which of two policies is better, the row has that trend, and the other policy a row without a number.
"""
