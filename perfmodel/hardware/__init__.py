"""What the computation runs on: the types of the spec files, and the catalogue that finds them by name.

Map of the folder, lowest module first:

- ``file_changes``: what was loaded is given again while its files stay as they were.
- ``spec_files``: where spec files are, how they are found, read, loaded and written; knows no kind.
- ``faults``: what pydantic says is wrong with a file, turned into lines for its owner.
- ``source``: the base class of every spec file, and the rule that every number names its source.
- ``constant``: unit, meaning and validity range of a fitted or profiled constant.
- ``device``, ``link``, ``storage``, ``dataset``, ``system``, ``library``: one kind of file each.
- ``link_catalogue``: links by name at every lane width, and what two ends settle on.
- ``catalogue``: ``load_device("gtx_1080")`` and its kin.

This package imports nothing on its own, so that ``import perfmodel`` stays free of pydantic.
"""
