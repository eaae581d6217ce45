"""Exchanges rows with annotators through Label Studio: writes projects, reads exports, settles disagreements."""
