"""Printers: the columns of each kind and the cells of one object, as ``kubectl get`` shows them.

``table`` holds the printer type and the formats that printers share, ``printers`` the printer of every built-in kind,
and the other modules those printers by area. ``additional_columns`` makes the printer of a custom resource. Printers
work on plain objects; :mod:`kubestow_devcluster.apiserver.endpoints.tables` makes Table responses of them.
"""
