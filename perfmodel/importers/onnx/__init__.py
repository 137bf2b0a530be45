"""ONNX files, read without their weights, as programs and layer graphs."""
