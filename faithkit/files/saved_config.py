"""The config.yaml of a run's folder: plain data, written and read so that nothing in it can act on its reader.

A run's folder may come from anyone. Its configuration holds texts, numbers, lists and maps; there are no
interpolations, tags, aliases or repeated keys, and its size is checked before it is read. A literal `${` in a text is
written as OmegaConf escapes it, `\\${`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import write_text

MAX_BYTES, MAX_NODES, MAX_DEPTH = 1_000_000, 10_000, 24  # ours has about 4,000 bytes, 250 nodes and a depth of 6
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
_HINT = "put the config.yaml back as the run wrote it, or begin again in another run_dir"
_MARKED = re.compile(r"(\\*)\$\{")
_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.inf)$|\.nan$",
    re.IGNORECASE,
)


def _resolvers() -> dict[Any, Any]:
    """Selects which unquoted words are no text: null, booleans and numbers; 1e-4 is a number, unlike in YAML 1.1."""
    known = ("null", "bool", "int")
    kept = {
        first: [(tag, words) for tag, words in rules if tag.rpartition(":")[2] in known]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+.0123456789":
        kept[first] = [*kept.get(first, []), ("tag:yaml.org,2002:float", _FLOAT)]
    return kept


# The parser in C is ten times as fast as that in Python, and there in every wheel of PyYAML.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _resolvers()


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _resolvers()  # the same: what the loader would not read as text is quoted

    def ignore_aliases(self, data: Any) -> bool:
        return True  # a value in two places is written twice

    def text(self, data: str) -> yaml.ScalarNode:
        """Writes a text; one with a line break that is none for most programs is quoted, or it would become a space."""
        style = '"' if _BREAKS.search(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.text)


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Writes a configuration of plain values, all of them resolved."""
    plain = _escaped(dict(config))
    write_text(path, yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return _MARKED.sub(lambda found: f"{2 * found[1]}\\${{", value)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value


def read_config(path: Path) -> dict[str, Any]:
    """Reads a configuration that a run's folder holds.

    Raises:
        UserError: It is not plain data, too large, damaged, or not there.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        hint = "set resume to a run's folder"
        raise UserError("nothing to resume: no config.yaml", place=str(path.parent), hint=hint) from error
    if len(data) > MAX_BYTES:
        _refuse(f"larger than {MAX_BYTES:,} bytes: no run writes such a configuration", str(path))
    if not data.strip(b"\x00 \t\r\n"):
        _refuse(f"empty: {len(data):,} bytes, and nothing in them", str(path))
    try:
        text = data.decode("utf-8-sig")
        depth = nodes = 0
        for event in yaml.parse(text, Loader=_Loader):  # before anything is built: a bomb is refused where it begins
            place = f"{path}, line {event.start_mark.line + 1}"
            if getattr(event, "anchor", None):
                _refuse(f"an alias: {shorten(event.anchor)}; a run's configuration is plain data", place)
            if getattr(event, "tag", None):
                _refuse(f"a tag: {shorten(event.tag)}; a run's configuration is plain data", place)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            nodes += isinstance(event, yaml.NodeEvent)
            if depth > MAX_DEPTH or nodes > MAX_NODES:
                _refuse(f"more than {MAX_NODES:,} values" if nodes > MAX_NODES else _TOO_DEEP, place)
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8: {error.reason} at byte {error.start:,}", str(path))
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        too_deep = "nesting depth" in str(error.problem)  # PyYAML's limit, which can be reached before the one here
        problem = _TOO_DEEP if too_deep else f"not YAML: {error.problem}"
        _refuse(problem, f"{path}{line}")
    except yaml.YAMLError as error:
        _refuse(f"not YAML: {shorten(str(error))}", str(path))
    if not isinstance(node, yaml.MappingNode):
        _refuse("not a configuration: it should be a map of keys to values", str(path))
    return _value(node, "", path)


def _refuse(problem: str, place: str) -> NoReturn:
    raise UserError(problem, place=place, hint=_HINT)


def _value(node: yaml.Node, key: str, path: Path) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, f"{key}[{number}]", path) for number, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, key, path)
    found: dict[Any, Any] = {}
    for name_node, item in node.value:
        name = _scalar(name_node, key, path) if isinstance(name_node, yaml.ScalarNode) else None
        place = f"{path}, line {name_node.start_mark.line + 1}"
        if type(name) not in (str, int):
            _refuse(f"a key that is not a text: {shorten(getattr(name_node, 'value', None))}", place)
        if name in found:
            _refuse(f"the key {shorten(name)} is repeated", place)
        found[name] = _value(item, f"{key}.{name}" if key else str(name), path)
    return found


def _scalar(node: yaml.Node, key: str, path: Path) -> Any:
    place = f"{path}, line {node.start_mark.line + 1}"
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, OverflowError, KeyError) as error:  # a whole number of thousands of digits
        _refuse(f"{key} cannot be read: {shorten(str(error))}", place)
    if not isinstance(value, str):
        return value
    if any(len(found[1]) % 2 == 0 for found in _MARKED.finditer(value)):
        _refuse(f"{key} is an interpolation, {shorten(value)}: a run's configuration holds values alone", place)
    return _MARKED.sub(lambda found: f"{found[1][: len(found[1]) // 2]}${{", value)
