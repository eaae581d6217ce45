"""Invented rows in the official layouts, by what the datasets hold, and parts that the rows of several share."""

from typing import Any

Rows = list[dict[str, Any]]
LAKE = "Lake Orvel is the deepest lake of the northern plateau."
