"""Engines that write text: decoding settings, transformers and vLLM."""
