"""The flight record: what a scheduler saw and decided, in bounded files, and its replay bit for bit."""
