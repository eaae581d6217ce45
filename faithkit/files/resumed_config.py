"""The configuration of a resumed run: its own, with the few values that this command may change, and their history.

What is written belongs to the settings that it was written with, so each script says in one list, MAY_CHANGE, which
keys a resumed run may take from the command line; all others are refused, by name. What changed stands in config.yaml
under `resumed`: the key, the old value and the new one, when, and behind how much work.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import read_config, write_config

HISTORY = "resumed"
OF_THE_COMMAND = ("resume", "debug", "extensions")  # about this command, not about the run
KEEPS = "auto"  # given for a value that is settled, it means the one that was chosen
# Names in the configurations of older runs, and those of today.
MOVED = {"critic.entailment.load_entailment": "faithkit_workflows.detectors.entailment.load_entailment"}
_MISSING = object()


class ResumedConfig:
    """A run's own configuration, and the overrides of the command that resumes it.

    Args:
        given: The configuration that the command line composes, resolved as far as it is set.
        overrides: Those of the command line, as they were typed.
        may_change: The keys, or patterns of them, that a resumed run may change.
    """

    def __init__(self, run: RunFolder, given: Mapping[str, Any], overrides: Sequence[str], may_change: Sequence[str]):
        saved = _moved(read_config(run.config))
        if isinstance(saved.get("engine"), str):  # older runs have the engine's name alone
            saved["engine"] = {"name": saved["engine"]}
        self._run, self._may_change = run, may_change
        self._history = saved.pop(HISTORY, [])
        if not isinstance(self._history, list):
            raise UserError(f"{HISTORY} is no list", place=str(run.config), hint=f"delete {HISTORY} from it")
        # What is newer than the run has its default.
        newer = {key: value for key, value in given.items() if key not in saved and not isinstance(value, Mapping)}
        self.config: dict[str, Any] = {**saved, **newer}
        self._changes = self._apply(given, overrides)

    def _apply(self, given: Mapping[str, Any], overrides: Sequence[str]) -> list[dict[str, Any]]:
        changes, refused = [], []
        for override in overrides:
            key = override.lstrip("+~").partition("=")[0]
            new = _MISSING if override.startswith("~") else _select(given, key)
            if key in OF_THE_COMMAND or self._names_own_choice(key, new):
                continue
            if new is _MISSING:
                refused.append(f"{override} (the run has no such value)")
                continue
            for name, value in [(key, new)] if self._is_free(key) else _leaves(key, new):
                old = _select(self.config, name)
                if old == value and isinstance(old, bool) == isinstance(value, bool):
                    continue
                if not self._is_free(name):
                    if value != KEEPS:
                        began = "the run has no such value" if old is _MISSING else f"it began with {_show(name, old)}"
                        refused.append(f"{name}={_text(value)} ({began})")
                    continue
                _set(self.config, name, value)
                before = None if old is _MISSING else old
                changes.append({"key": name, "old": before, "new": value})
        if refused:
            self._refuse(refused)
        return changes

    def _names_own_choice(self, key: str, new: Any) -> bool:
        """Tells whether a group is chosen again whose values may all change: the choice's defaults are no changes."""
        own = _select(self.config, key)
        named = isinstance(new, Mapping) and isinstance(own, Mapping) and "name" in new
        return named and self._is_free(f"{key}.name") and new["name"] == own.get("name")

    def _is_free(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in self._may_change)

    def _refuse(self, refused: list[str]) -> None:
        also = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        problem = f"a resumed run keeps its settings: {', '.join(refused[:3])}{also}"
        if not self._run.has_work():
            hint = f"nothing is written yet: give the whole command again with run_dir={self._run.path}"
        else:
            hint = f"begin again in another run_dir; what may change: {', '.join(self._may_change)}"
        raise UserError(problem, place=str(self._run.config), hint=hint)

    def record(self) -> None:
        """Writes the changes into config.yaml, with when they were made and behind how much work."""
        if not self._changes:
            return
        facts = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "behind": self._run.progress()}
        history = [*self._history, *({**change, **facts} for change in self._changes)]
        write_config(self._run.config, {**self.config, HISTORY: history})


def settle(run: RunFolder, key: str, value: Any) -> None:
    """Writes into a run's configuration what a value that was left open came to."""
    config = read_config(run.config)
    write_config(run.config, {**config, key: value})


def _show(name: str, value: Any) -> str:
    return f"{name.rpartition('.')[2]}={_text(value)}"


def _text(value: Any) -> str:
    text = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else None
    return text or (value if isinstance(value, str) and len(value) < 60 else shorten(value, 60))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Gives the single values below a key: a whole group given again may say what the run says already."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}", item)
    else:
        yield key, value


def _select(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        else:
            return _MISSING
    return found


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    *groups, name = key.split(".")
    for group in groups:
        config = config.setdefault(group, {})
    config[name] = value


def _moved(saved: Any) -> Any:
    """Replaces the old names of classes by those of today."""
    if isinstance(saved, dict):
        return {
            key: MOVED.get(item, item) if key == "_target_" and isinstance(item, str) else _moved(item)
            for key, item in saved.items()
        }
    return [_moved(item) for item in saved] if isinstance(saved, list) else saved
