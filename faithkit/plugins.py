"""Finds code of other packages: entry points of installed packages, and objects named as `module:Class`."""

import logging
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from faithkit.errors import UserError

log = logging.getLogger("faithkit")
DATASETS, DETECTORS, METRICS = (f"faithkit.{name}" for name in ("datasets", "detectors", "metrics"))  # the groups
OBJECT = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")  # module:Class


@cache
def load_plugins(group: str, kind: type[Any]) -> Mapping[str, Any]:
    """Loads what installed packages declare in a group, by name; names those that fail in a warning.

    Args:
        kind: The class of the objects; others are left out too.
    """
    found: dict[str, Any] = {}
    for point in entry_points(group=group):
        try:
            plugin = point.load()
        except Exception as error:  # its module may raise anything
            log.warning("plug-in %s (%s) is left out: %s: %s", point.name, point.value, type(error).__name__, error)
            continue
        if isinstance(plugin, kind):
            found.setdefault(point.name, plugin)
        else:
            log.warning("plug-in %s (%s) is left out: it is no %s", point.name, point.value, kind.__name__)
    return found


def plugin_names(group: str) -> set[str]:
    """Returns the names that installed packages declare in a group, without importing anything."""
    return {point.name for point in entry_points(group=group)}


def object_name(text: str) -> str | None:
    """Returns the `module:Class` that a text begins with, if there is a package of this name; imports nothing.

    More may follow a further colon: `module:Class:ARGUMENT`.
    """
    match = OBJECT.match(text)
    if match is None or text[match.end() : match.end() + 1] not in ("", ":") or match[1] in plugin_names(DETECTORS):
        return None
    return match[0] if find_spec(match[1]) else None


def load_object(name: str) -> Any:
    """Imports `module:Class`.

    Raises:
        UserError: The import fails, or there is no such class.
    """
    try:
        return resolve_name(name)
    except Exception as error:  # its module may raise anything
        hint = "name an object that can be imported, as module:Class"
        raise UserError(f"cannot import {name}: {type(error).__name__}: {error}", hint=hint) from error
