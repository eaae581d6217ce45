"""What a generator is trained for: one objective a file."""
