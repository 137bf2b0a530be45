"""LayerGraph: a network as a directed acyclic graph of layers, with shapes, totals per phase and JSON.

``layer_graph`` is the class; ``execution`` the operations of its phases; ``graph_file`` its JSON; ``summary``
its table.
"""

from __future__ import annotations

from perfmodel.graph.execution import LayerOperations, Node
from perfmodel.graph.layer_graph import LayerGraph
from perfmodel.graph.summary import GraphSummary, LayerSummary

__all__ = ["GraphSummary", "LayerGraph", "LayerOperations", "LayerSummary", "Node"]
