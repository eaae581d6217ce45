"""The command line: its overrides, the types of its values, and the checks that come before anything is made."""
