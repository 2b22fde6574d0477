"""The flags of ``kubestow run``: kube-scheduler's, with its defaults, sections and precedence (semantics 1.1).

values     how a flag's text is read: Go's booleans, durations, lists and maps
catalog    every flag there is, by section
command    a click command that takes flags as kube-scheduler does and groups them in --help
effective  what flags and configuration file come to together
"""
