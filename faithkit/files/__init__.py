"""Files that are whole or absent: JSON lines, a run's folder, a model's folder, the cache."""
