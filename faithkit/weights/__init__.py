"""Model weights: where they come from, and how they are written for others."""
