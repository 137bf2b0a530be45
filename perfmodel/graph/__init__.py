"""LayerGraph: a network as a directed acyclic graph of layers, with shapes, totals per phase and JSON.

``layer_graph`` has the class, ``node`` a layer with its inputs, ``structure`` layers and their shapes. ``execution``
lists the operations of each phase, ``liveness`` the memory at every moment, ``storage`` the tensors that share memory.
``graph_file`` reads and writes JSON; ``summary`` makes the table.
"""

from __future__ import annotations

from perfmodel.graph.execution import LayerOperations
from perfmodel.graph.layer_graph import LayerGraph
from perfmodel.graph.node import Node
from perfmodel.graph.summary import GraphSummary, LayerSummary

__all__ = ["GraphSummary", "LayerGraph", "LayerOperations", "LayerSummary", "Node"]
