"""The sequence critic: judges a whole response against its knowledge."""
