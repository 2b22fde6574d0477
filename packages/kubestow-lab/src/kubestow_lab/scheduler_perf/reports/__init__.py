"""Reports of results: tables, JSON, a self-contained HTML page, and the comparison of two results."""
