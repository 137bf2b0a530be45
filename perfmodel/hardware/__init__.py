"""What the computation runs on: the types of the spec files, and the catalogue that finds them by name.

Map of the folder, lowest module first:

- ``spec_files``: finds, reads, loads and caches spec files of any kind.
- ``source``: the base class of every spec file, the rule that every number names its source, fitted constants.
- ``device`` (``gpu``, ``cpu``), ``link``, ``storage``, ``dataset``, ``system``, ``library``, ``price``: one kind each.
- ``measured_machine``, ``fit_file``, ``interval_scale``: files that perfmodel itself writes.
- ``topology``, ``wiring``, ``cluster``: the parts of a system and machines as a graph, and how they are wired.
- ``part_catalogue``: devices by name, links at every lane width, and the link that two ends negotiate.
- ``catalogue``: ``load_device("gtx_1080")`` and similar loaders.

This package itself imports nothing, so that ``import perfmodel`` stays free of pydantic.
"""
