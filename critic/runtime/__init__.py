"""Precisions and ONNX: how a trained detector runs."""
