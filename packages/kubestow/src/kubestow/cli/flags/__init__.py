"""The flags of ``kubestow run``: kube-scheduler's, with its defaults, sections and precedence (semantics 1.1).

values     the flag types of Go's pflag: booleans, durations, lists and maps
catalog    all flags, by section
command    a click command that parses flags as kube-scheduler does and groups them in --help
effective  the effective configuration of flags and configuration file
"""
