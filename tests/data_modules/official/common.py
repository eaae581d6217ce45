"""Parts that the rows of several datasets share."""

from typing import Any

Rows = list[dict[str, Any]]
LAKE = "Lake Orvel is the deepest lake of the northern plateau."
