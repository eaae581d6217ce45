"""Builds benchmarks as the papers did: chains of steps over JSON lines, which any kill can interrupt."""
