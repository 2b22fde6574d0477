"""The HTML report: one self-contained page about a simulation, a comparison of two, or the explanation of a pod.

Text is written by Python and readable without scripts; the charts, the node map and long tables are drawn by the
script of the page from data that is embedded as JSON. The page loads nothing: its content security policy allows its
own script and style only, by their hashes. All that comes from the input is escaped, and the script sets text, never
markup.
"""
