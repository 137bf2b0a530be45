"""LayerGraph: a network as a directed acyclic graph of layers, with shapes, totals per phase and JSON.

``layer_graph`` is the class, ``structure`` its layers and shapes; ``node`` a layer with its inputs; ``execution`` the
operations of its phases and those that checkpoints repeat; ``graph_file`` its JSON; ``summary`` its table.
"""

from __future__ import annotations

from perfmodel.graph.execution import LayerOperations
from perfmodel.graph.layer_graph import LayerGraph
from perfmodel.graph.node import Node
from perfmodel.graph.summary import GraphSummary, LayerSummary

__all__ = ["GraphSummary", "LayerGraph", "LayerOperations", "LayerSummary", "Node"]
