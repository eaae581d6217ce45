"""Tests of judge/."""
