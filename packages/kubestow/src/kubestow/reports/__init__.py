"""Reports: their model of text, tables and figures, shown on a terminal, as Markdown, and as HTML pages."""
