"""The commands about clusters and records in files, most of which also read a live cluster once."""
