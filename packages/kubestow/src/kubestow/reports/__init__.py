"""Reports: tables on a terminal, and self-contained HTML pages."""
