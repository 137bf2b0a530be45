"""Parallelism: a network on several devices, as the graphs that each runs and what they exchange.

Map of the folder, lowest module first:

- ``base``: Exchange, StageGraph, Placement, Layout, the contract; exchanges of a phase.
- ``stages``: parts of a graph, where it may be cut, and the cuts that make the longest stage shortest.
- ``tensor_split``: layers that a group of devices shares, by Megatron-LM's rules.
- ``combine``: these with what data-parallel workers exchange, and what where they share parameters (ZeRO).
- ``registry``: the parallelisms, the list of them, and ``place``, which asks one of them.
"""
