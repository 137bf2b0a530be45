"""Parallelism: a network on several devices, as the graph that each runs and the exchanges between them.

Map of the folder, lowest module first:

- ``base``: the interface: Exchange, StageGraph, Placement, Layout, Parallelism.
- ``stages``: parts of a graph, places where it can be cut, and the cuts that make the longest stage shortest.
- ``tensor_split``: layers shared by a group of devices, by Megatron-LM's rules.
- ``combine``: tensor groups, stages and data-parallel copies together, with shared state (ZeRO).
- ``registry``: the parallelisms, and ``place``, which applies one of them.
"""
