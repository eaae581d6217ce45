"""The keys of each script with their types, conflicts and preflight checks; nothing heavy is imported here."""
