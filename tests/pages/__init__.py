"""The pages that people read, and what is written in them: every command and every line of Python is tried."""
