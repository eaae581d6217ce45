"""Builds dialogues between two language models."""
