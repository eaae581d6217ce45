"""Injects faults: damaged files, kills, full disks, hostile values. What is left must be whole, or refused."""
