"""The files of a flight record: their format, what they leave out, and the thread that writes them."""
