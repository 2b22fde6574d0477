"""Gang scheduling: the pods of a group get their nodes all together or not at all (semantics 4.10).

:mod:`.scheduling_cycle` is where to begin. It places the members one after the other, in one topology placement after
the other where the group has a topology constraint (:mod:`.placer`), and finds victims if they do not fit
(:mod:`.preemption`). Members wait for one another before they are bound at the gang barrier (:mod:`.barrier`).
"""
