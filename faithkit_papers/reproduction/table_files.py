"""Reads the files of the papers' tables as plain values, and fills the fields in their texts.

faithkit_papers/reproduction/paper_tables.py describes what they may hold.
"""

import re
import string
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from faithkit.errors import UserError, choice_hint, nearest
from faithkit_papers.reproduction.table_steps import LOCAL, PAPER

FOLDER = Path(__file__).parent
FILES = ("faithdial", "halludial", "ragtruth", "diahalu", "plots")
ALL, LIST = "all", "list"
ABSENT = object()
Row = Mapping[str, Any]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads YAML, and refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(problem=f"the key {name} is repeated", problem_mark=node.start_mark)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


@cache
def read_file(path: Path) -> Mapping[str, Any]:
    """Reads a file of tables as plain values, for both scales."""
    try:
        values: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise UserError(f"not YAML: {error}", place=str(path)) from error
    check_names("key", values, ("shared", "models", "steps", "tables", "figures"), str(path))
    return dict(values)


def list_names() -> tuple[str, ...]:
    """Lists the names of all tables, and then of all figures."""
    files = [read_file(FOLDER / f"{name}.yaml") for name in FILES]
    return tuple(name for section in ("tables", "figures") for file in files for name in file.get(section, ()))


def select_scale(value: Any, scale: str) -> Any:
    """Replaces each `{local: ..., paper: ...}` in plain values by its value at a scale; what has none is left out."""
    if isinstance(value, Mapping):
        if value and value.keys() <= {LOCAL, PAPER}:
            return select_scale(value.get(scale, ABSENT), scale)
        found = ((key, select_scale(item, scale)) for key, item in value.items())
        return {key: item for key, item in found if item is not ABSENT}
    if isinstance(value, list):
        return _join(item for item in (select_scale(item, scale) for item in value) if item is not ABSENT)
    return value


def _join(items: Iterable[Any]) -> list[Any]:
    return [one for item in items for one in (item if isinstance(item, list) else [item])]


class Fields(dict[str, Any]):
    """The fields of a row; derived ones are filled when they are asked for.

    Args:
        derived: As `fields` of Part.
        place: The file and key, for errors.
    """

    def __init__(self, given: Row, derived: Row, place: str):
        super().__init__(given)
        self.derived, self.place = derived, place

    def __missing__(self, name: str) -> Any:
        if name not in self.derived:
            hint = choice_hint(name, [*self, *self.derived])
            raise UserError(f"there is no field {name}", place=self.place, hint=hint)
        return self.setdefault(name, self.look_up(self.derived[name]))

    def look_up(self, rule: Any) -> Any:
        """Finds the text for the value of a column, or fills a text."""
        if not isinstance(rule, Mapping):
            return self.fill(rule)
        [(column, texts)] = rule.items()
        value = self[column]
        return self.fill(texts.get(value, texts.get("else", value)))

    def fill(self, value: Any) -> Any:
        """Fills the texts in a value; a text that is one `{field}` becomes the field's value."""
        if isinstance(value, Mapping):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return _join(map(self.fill, value))
        if not isinstance(value, str):
            return value
        whole = re.fullmatch(r"{(\w+)}", value)
        return self[whole[1]] if whole else _Formatter().vformat(value, (), self)

    def match(self, where: Row) -> bool:
        """Checks whether each named field has the value, or one of the values."""
        return all(self[name] in (one if isinstance(one, list) else [one]) for name, one in where.items())


class _Formatter(string.Formatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "k":
            return "".join(character if character.isalnum() else "_" for character in str(value).lower())
        return str(value).lower() if conversion == "l" else super().convert_field(value, conversion)


def check_names(what: str, names: Iterable[str], known: Iterable[str], place: str) -> None:
    """Refuses a name that is not known."""
    for name in names:
        if name not in known:
            hint = choice_hint(name, nearest(str(name), map(str, known)) or known)
            raise UserError(f"there is no {what} {name}", place=place, hint=hint)
