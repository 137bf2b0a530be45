"""Importers: networks of other programs as layer graphs.

``torch_*`` record a torch module without running it, ``program`` is what any importer hands on, ``build`` makes the
graph of it, ``audit`` compares the counts with another program's.
"""

from __future__ import annotations
