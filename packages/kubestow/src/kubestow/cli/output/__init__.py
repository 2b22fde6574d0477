"""The forms of results: data and tables on standard output or in files, and progress on a terminal."""
