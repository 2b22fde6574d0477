"""``python -m kubestow``."""

from kubestow.cli import main

main()
