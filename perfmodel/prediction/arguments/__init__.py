"""Arguments of predict: one table of them, and the checks of single values.

Map of the folder, lowest module first:

- ``checks``: which single values are allowed.
- ``tries``: other values of an argument that ``advise`` tries.
- ``table``: the record of one argument, ``ARGUMENTS``, the one list of all, and which combinations are allowed.
- ``typed``: the same as types; ``tools/generate_arguments.py`` writes its stub for type checkers and completion.
"""
