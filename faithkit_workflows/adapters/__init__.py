"""Adapters: faithkit's detectors in the form that other evaluation tools expect.

One module a tool, imported by its name: `from faithkit_workflows.adapters.deepeval import FaithfulnessMetric`. A module
needs the package of its tool, and says how to install it where it is missing.
"""
