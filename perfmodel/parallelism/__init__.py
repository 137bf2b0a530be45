"""Parallelism: a network on several devices, as the graphs that each runs and what they exchange.

Map of the folder, lowest module first:

- ``base``: Exchange, StageGraph, Placement, Layout, the contract of a parallelism.
- ``part``: some layers of a graph as a graph of their own.
- ``stages``: where a graph may be cut, and the cuts that make the longest stage shortest.
- ``tensor_roles``, ``tensor_split``: layers that a group of devices shares, by Megatron-LM's rules.
- ``sharded``: what data-parallel workers exchange, and what where they share parameters (ZeRO).
- ``combine``: the three together.
- ``kinds``, ``hybrid``: the parallelisms.
- ``registry``: the list of them, and ``place``, which asks one of them.
- ``recompute``: exchanges that run again with layers that do.
"""

from __future__ import annotations

from perfmodel.parallelism.base import Exchange as Exchange
from perfmodel.parallelism.base import Layout as Layout
from perfmodel.parallelism.base import Parallelism as Parallelism
from perfmodel.parallelism.base import Placement as Placement
from perfmodel.parallelism.base import Request as Request
from perfmodel.parallelism.base import StageGraph as StageGraph
