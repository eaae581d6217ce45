"""Finds datasets by name, also those of other packages."""

from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name

from data_modules.reading.dataset import Source
from faithkit.errors import UserError
from faithkit.packages import DATASETS as ENTRY_POINTS
from faithkit.targets import DATASETS


class _Sources(Mapping[str, type[Source]]):
    """The classes of our datasets by their names; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> type[Source]:
        found: type[Source] = resolve_name(DATASETS[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(DATASETS)

    def __len__(self) -> int:
        return len(DATASETS)


SOURCES = _Sources()


def find_dataset(name: str | None, target: str | None = None) -> type[Source]:
    """Returns the class of a dataset.

    Args:
        name: One of SOURCES, or an entry point that an installed package declares in the group `faithkit.datasets`.
        target: The importable name of a class, `package.module.Class`, in the place of a name.

    Raises:
        UserError: There is no such dataset, it cannot be imported, or it is not a `Source`.
    """
    if target is not None:
        if name is not None:
            raise UserError(f"both dataset {name!r} and _target_ {target!r} are given", hint="leave one of them out")
        return _checked(target, lambda: resolve_name(target))
    if name is not None and name in SOURCES:
        return SOURCES[name]
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=ENTRY_POINTS):
        if entry_point.name == name:
            return _checked(entry_point.value, entry_point.load)
    hint = f"use one of {', '.join(sorted(SOURCES))}; or the importable name of a class: _target_=package.module.Class"
    raise UserError(f"unknown dataset {name!r}", hint=hint)


def _checked(place: str, load: Callable[[], object]) -> type[Source]:
    try:
        found = load()
    except Exception as error:  # its module may raise anything
        hint = "install its package, and name the class as package.module.Class"
        raise UserError(f"cannot import the dataset {place!r}: {error}", hint=hint) from error
    if not (isinstance(found, type) and issubclass(found, Source)):
        hint = "give a class that inherits from data_modules.reading.dataset.Source"
        raise UserError(f"{place!r} is not a dataset: {found!r}", hint=hint)
    if not found.name:
        raise UserError(f"the dataset {place!r} has no name", hint='set name: ClassVar[str] = "..." in its class')
    if not found.official_files and found.files is Source.files:
        raise UserError(f"the dataset {place!r} has no files", hint="define official_files or files in its class")
    if missing := sorted(found.__abstractmethods__):
        raise UserError(f"the dataset {place!r} has no {', '.join(missing)}", hint="define it in its class")
    return found
