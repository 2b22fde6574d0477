"""Mutation testing of the core: do the tests notice when a small thing is wrong?

    make mutants PACKAGES=scheduling,plugins SAMPLE=200

:mod:`~tools.mutants.mutations` lists the mutants, :mod:`~tools.mutants.covering` measures once which tests run which
line, and :mod:`~tools.mutants.fork_server` runs those tests against each mutant of a sample, which takes about a second
instead of the minutes of all tests. Mutants that no test can kill are declared in ``equivalent.toml``.

No tool that is kept serves for this code. cosmic-ray starts a process per mutant and runs the same tests for all of
them; mutmut leaves out decorated functions and calls the others through trampolines; pytest-gremlins compiles all
mutants of a module into it at once, behind conditions, which the hot loops are measured with. None deletes statements.
"""
