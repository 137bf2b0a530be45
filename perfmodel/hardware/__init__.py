"""What the computation runs on: the types of the spec files, and the catalogue that finds them by name.

Map of the folder, lowest module first:

- ``spec_files``: where spec files are, how they are found, read, loaded, kept while unchanged; knows no kind.
- ``source``: the base class of every spec file, the rule that every number names its source, fitted constants.
- ``device``, ``link``, ``storage``, ``dataset``, ``system``, ``library``: one kind of file each.
- ``part_catalogue``: devices by name, links at every lane width, and what two ends settle on.
- ``catalogue``: ``load_device("gtx_1080")`` and its kin.

This package imports nothing on its own, so that ``import perfmodel`` stays free of pydantic.
"""
