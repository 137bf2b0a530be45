"""Arguments of predict: one table of them, and the checks of single values.

Map of the folder, lowest module first:

- ``checks``: what is allowed of a single value.
- ``table``: the record of one argument, ``ARGUMENTS``, the one list of all, and what they must be to one another.
- ``typed``: the same for type checkers and completion; written by ``tools/generate_arguments.py``.
"""
