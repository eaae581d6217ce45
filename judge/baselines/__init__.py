"""Prompted baselines: SelfCheckGPT and an examiner (LMvLM)."""
