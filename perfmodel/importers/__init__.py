"""Importers: networks that other programs wrote, as layer graphs.

``onnx_file`` reads ONNX files, ``huggingface`` configurations of transformers, ``load`` what a user names by a path.
``build`` turns calls of operators into layers, ``batch`` tells the batch axis from shapes at several batch sizes.
"""

from __future__ import annotations
