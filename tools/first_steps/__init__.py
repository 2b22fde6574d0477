"""The page docs/first-steps.md: a transcript, whose commands are run to write it and to check it."""
