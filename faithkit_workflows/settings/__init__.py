"""The keys of each script with their kinds and ranges; nothing heavy is imported, so that a refusal is quick."""
