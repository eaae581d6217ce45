"""The papers' tables as experiments of this project: which steps each takes, and which result is which cell."""
