"""Parts that users add from their own files: factors, backbones, data sets, trainers, ...

There are three ways in: `--with FILE` on the command line, `with = ["FILE"]` under
`[tool.ablate]` in the pyproject.toml of the working directory, and the entry-point group
`ablate` of an installed package. Each leads to a Python module. The parts are the
records that it holds at its top level, so nothing has to be registered. A space, a
checkpoint or a store never names a module to import.

The meaning of a part's files (`own.syntax`) is part of the identity of every trial that
uses the part, unless the part declares a `revision`, which then takes its place. The
identity is the hash of the first text of this meaning that the store has seen, so that a
comment changes no trial, and trials of before this rule keep their hashes. Workers get the
content from the driver, so they never run other code than the driver planned with.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.abc
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

from ablate.errors import AblateError
from ablate.identity import content_hash
from ablate.own import commits
from ablate.own.syntax import file_hashes, syntax_hash, why_texts_count
from ablate.own.user_modules import Loader, Source, files_of, finder, read

# What a part can be. The class of a part has one of these as its attribute `part`.
KINDS = (
    "factor",
    "backbone",
    "data set",
    "loss",
    "optimizer",
    "schedule",
    "augmentation",
    "metric",
    "operator",
    "diagnostic",
    "trainer",
)
# Names the folder in which a process writes the files of a driver elsewhere.
PARTS_FOLDER = "ABLATE_PARTS_FOLDER"
ENTRY_POINTS = "ablate"
# What names the file that declares a command, without the scripts of the command.
DECLARATION = "command "


class PartRecord(Protocol):
    """What every part has. A name that is empty is that of its variable."""

    part: ClassVar[str]

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> int | str | None:
        """Declared by its author; None: the content of its files counts instead."""


@dataclass(frozen=True)
class Part:
    """A part of a user's file."""

    kind: str
    name: str
    record: Any
    source: Source

    @property
    def identity(self) -> str:
        """What enters the hash of a trial that uses the part."""
        revision = self.record.revision
        if revision is not None:
            return f"revision {revision}"
        return _identity_of(self.texts)

    @property
    def declaration(self) -> str:
        """The same without the files that its command names: commits have their own."""
        revision = self.record.revision
        if revision is not None:
            return f"revision {revision}"
        return _identity_of(self.source.texts)

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file that it reads; of a file of data, its hash."""
        scripts = _scripts(self.record, Path(self.source.path).parent)
        if not scripts:
            return self.source.texts
        return {**self.source.files, **scripts}


def _identity_of(texts: Mapping[str, str]) -> str:
    return _identities.get(syntax_hash(texts)) or content_hash(texts)


def _scripts(record: Any, folder: Path) -> dict[str, str]:
    """The text of the files in a trainer's command, and of what scripts import.

    A word with a place, such as `train_{norm}.py`, stands for all files that fit.
    """
    texts: dict[str, str] = {}
    words = getattr(record, "command", ())
    for before, word in zip(("", *words), words, strict=False):
        for path in _files_in(word, folder, is_module=before == "-m"):
            if path.suffix == ".py":
                contents = read(path, path.parent)
            else:
                # Perhaps a large file of data.
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                contents = {path.name: digest}
            texts |= {f"{word}: {name}": text for name, text in contents.items()}
    return texts


def scripts_of(record: Any, root: Path) -> list[tuple[str, str]]:
    """The words of a command that name a file, and each file below a folder."""
    folder = Path(_parts["trainer", record.name].source.path).parent
    words = record.command
    scripts = []
    for before, word in zip(("", *words), words, strict=False):
        if "{" in word:
            # What it names depends on the trial.
            continue
        for path in _files_in(word, folder, is_module=before == "-m"):
            if path.is_relative_to(root):
                scripts.append((word, path.relative_to(root).as_posix()))
    return scripts


def _files_in(word: str, folder: Path, *, is_module: bool) -> list[Path]:
    """The files that a word of a command names."""
    if is_module:
        return [path.resolve() for path in files_of(word, folder)]
    pattern = re.sub(r"\{[^{}]*\}", "*", word)
    if not pattern.strip("*") or "{checkpoint}" in word:
        # Nothing but a level, or a file that the script writes.
        return []
    if Path(pattern).is_absolute():
        # A program or a file elsewhere.
        paths = [Path(pattern)] if Path(pattern).suffix else []
    else:
        paths = sorted(folder.glob(pattern))
    return [path.resolve() for path in paths if path.is_file()]


_parts: dict[tuple[str, str], Part] = {}
# By syntax, the identity that trials of a store have.
_identities: dict[str, str] = {}
_sources: dict[str, Source] = {}
_caches: list[Any] = []
# The files that the user named for this command, as they were typed.
_named: list[str] = []
_written_folders: list[Path] = []
# The files that are loaded just now.
_loading: list[Path] = []

F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """Caches results until parts are added. The function must not change them."""
    remembering: Any = cache(function)
    _caches.append(remembering)
    # `functools.cache` keeps what the function returns, but not its type.
    return remembering  # type: ignore[no-any-return]


def of_kind(kind: str) -> dict[str, Any]:
    """The users' parts of one kind, by name."""
    return {part.name: part.record for part in _parts.values() if part.kind == kind}


def besides(kind: str, built_in: Iterable[str]) -> dict[str, Any]:
    """The users' parts of one kind, by name, none of which has a built-in name.

    Raises:
        AblateError: one of them has.
    """
    records = of_kind(kind)
    for name in built_in:
        if name in records:
            raise AblateError(
                f"the {kind} '{name}' is built in; give your own another name"
            )
    return records


def identity(kind: str, record: PartRecord) -> dict[str, str]:
    """What a part adds to the identity of a trial that uses it.

    It is empty for a built-in part of revision 1, so that adding this mechanism changed
    no hash.
    """
    part = _parts.get((kind, record.name))
    if part is not None:
        return {f"{kind} {record.name}": part.identity}
    if record.revision in (None, 1):
        return {}
    return {f"{kind} {record.name}": f"revision {record.revision}"}


def identity_of_declaration(trainer: PartRecord) -> dict[str, str]:
    """What a trainer adds to the identity of a trial that runs its command in a commit."""
    part = _parts["trainer", trainer.name]
    return {f"{DECLARATION}{trainer.name}": part.declaration}


def meaning_of_declaration(trainer: PartRecord) -> str:
    """Equal as long as what declares a command means the same."""
    part = _parts["trainer", trainer.name]
    return syntax_hash(part.source.texts)


def set_identities(by_syntax: Mapping[str, str]) -> None:
    """Makes the identities of parts those that the trials of a store have."""
    _identities.clear()
    _identities.update(by_syntax)


@dataclass(frozen=True)
class Texts:
    """The files of a part whose content is its identity.

    Attributes:
        syntax: hash of the meaning of all its files.
        identity: what enters the hash of a trial.
        files: hash of the meaning of each file, by name.
        why_texts_count: why comments and docstrings count; empty: they do not.
    """

    syntax: str
    identity: str
    files: Mapping[str, str]
    why_texts_count: str


def texts_of_parts() -> dict[str, Texts]:
    """The files of each part without a revision, by kind and name."""
    texts_by_part: dict[str, Texts] = {}
    for part in _parts.values():
        if part.record.revision is not None:
            continue
        main = Path(part.source.path).name
        texts_by_part[f"{part.kind} {part.name}"] = _texts(part.texts, main)
        if getattr(part.record, "command", ()):
            texts_by_part[f"{DECLARATION}{part.name}"] = _texts(part.source.texts, main)
    return texts_by_part


def _texts(texts: Mapping[str, str], main: str) -> Texts:
    return Texts(
        syntax=syntax_hash(texts),
        identity=_identity_of(texts),
        files={name or main: kept for name, kept in file_hashes(texts).items()},
        why_texts_count=why_texts_count(texts),
    )


def folder_of(kind: str, name: str) -> str:
    """The folder of the file that declares a part, on the driver's machine."""
    return str(Path(_parts[kind, name].source.path).parent)


def verify(code: Mapping[str, str]) -> None:
    """Checks that the parts of a trial are here as the driver planned with them.

    Args:
        code: the identities in the trial and its architecture.

    Raises:
        AblateError: a part is missing or has other content.
    """
    here: dict[str, str] = {}
    for part in _parts.values():
        here[f"{part.kind} {part.name}"] = part.identity
        if part.kind == "trainer":
            here[f"{DECLARATION}{part.name}"] = part.declaration
    for name, planned in code.items():
        # Revisions of built-in parts are those of this version.
        if name in here and here[name] != planned:
            raise AblateError(
                f"the files of the {name} changed while the study runs, or differ on this"
                " machine; run the study again, with the same files on all nodes"
            )


def sources() -> tuple[Source, ...]:
    """All files that parts were loaded from, for workers."""
    return tuple(
        replace(source, identities=dict(_identities)) for source in _sources.values()
    )


def clear() -> None:
    """Forgets all parts of users."""
    _named.clear()
    _identities.clear()
    for source in list(_sources.values()):
        _forget(source)
    commits.forget()


def load_all(files: Sequence[str]) -> None:
    """Loads files, what pyproject.toml names, and what installed packages offer.

    Raises:
        AblateError: a file is missing, fails, or declares no part.
    """
    for entry in _offered():
        _load_entry(entry)
    for file in (*_named_by_project(), *files):
        load_file(file)
    _named[:] = files


@cache
def _offered() -> tuple[EntryPoint, ...]:
    """What installed packages offer. Reading their metadata takes milliseconds."""
    return tuple(entry_points(group=ENTRY_POINTS))


def named() -> tuple[str, ...]:
    """The files that the user named for this command, for commands in messages."""
    return tuple(_named)


def load_file(file: str | Path) -> Source:
    """Loads the parts of a file. Loading unchanged content again does nothing.

    Raises:
        AblateError: the file is missing, fails, or declares no part.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise AblateError(f"there is no file {file} to load parts from")
    if path.suffix != ".py":
        raise AblateError(f"with {file}: not a Python file; its name must end in .py")
    source = Source(str(path), read(path, path.parent))
    loaded = _sources.get(source.path)
    if loaded is not None and loaded.hash == source.hash:
        return loaded
    if loaded is not None:
        _forget(loaded)
    _import_and_add(source, path)
    return source


def load_sources(driver_sources: Sequence[Source]) -> None:
    """Makes a worker's parts those of the driver.

    The content decides: if a file here is missing or differs, the driver's content is
    written to a temporary folder and loaded from there.

    Raises:
        AblateError: an installed package differs from that of the driver.
    """
    for source in driver_sources:
        _identities.update(source.identities)
        if source.module:
            _load_installed(source)
            continue
        loaded = _sources.get(source.path)
        if loaded is not None and loaded.hash == source.hash:
            continue
        if loaded is not None:
            _forget(loaded)
        path = Path(source.path)
        if not _is_equal(path, source):
            path = _written(source)
        _import_and_add(source, path)


def _load_installed(source: Source) -> None:
    for entry in _offered():
        if entry.module == source.module:
            _load_entry(entry)
    loaded = _sources.get(source.module)
    if loaded is None or loaded.hash != source.hash:
        raise AblateError(
            f"the installed package of {source.module} on this machine differs from"
            " that of the driver; install the driver's version here"
        )


def _is_equal(path: Path, source: Source) -> bool:
    if not path.is_file():
        return False
    return Source(str(path), read(path, path.parent)).hash == source.hash


def _written(source: Source) -> Path:
    """The driver's content in a temporary folder of this process."""
    folder = Path(
        tempfile.mkdtemp(prefix="ablate-parts-", dir=os.environ.get(PARTS_FOLDER))
    )
    _written_folders.append(folder)
    for name, text in source.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder / Path(source.path).name


@atexit.register
def remove_written() -> None:
    """Removes the folders in which this process has written the driver's files."""
    while _written_folders:
        shutil.rmtree(_written_folders.pop(), ignore_errors=True)


def _named_by_project() -> list[str]:
    """The files under `with` in `[tool.ablate]` of ./pyproject.toml."""
    project = Path("pyproject.toml")
    if not project.is_file():
        return []
    try:
        settings = tomllib.loads(project.read_text()).get("tool", {}).get("ablate", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Other tools report a broken project file.
        return []
    named = settings.get("with", [])
    if not isinstance(named, list) or not all(isinstance(file, str) for file in named):
        raise AblateError(
            "pyproject.toml: the key `with` of [tool.ablate] must be a list of files, as"
            ' in with = ["mine.py"]'
        )
    return named


def _load_entry(entry: EntryPoint) -> None:
    if entry.module in _sources:
        return
    with _readable(f"the installed package of {entry.module}"):
        module = importlib.import_module(entry.module)
    path = Path(str(module.__file__))
    depth = entry.module.count(".") + (path.name == "__init__.py")
    root = path.parents[depth]
    top = entry.module.partition(".")[0]
    source = Source(str(path), read(path, root, only=top), module=entry.module)
    _add(source, entry.module, module)


def _import_and_add(source: Source, path: Path) -> None:
    _refuse_loaded(source, path.parent)
    # As for a script: what lies beside the file can be imported.
    sys.path.insert(0, str(path.parent))
    finder.add(source, path.parent)
    _loading.append(path)
    try:
        # Prints of the file must not mix with the results on stdout.
        with _readable(source.path), contextlib.redirect_stdout(sys.stderr):
            module = importlib.import_module(path.stem)
        _add(source, source.path, module)
    except BaseException:
        # Also after Ctrl-C: half a file must not stay loaded.
        _forget(source)
        raise
    finally:
        _loading.pop()


def is_loading() -> bool:
    """Whether a file of the user is loaded just now."""
    return bool(_loading)


def _refuse_loaded(source: Source, folder: Path) -> None:
    """Raises AblateError if another module of a needed name is loaded already.

    Python would use that one, although the identity has the content of this one.
    """
    for name, file in source.modules.items():
        loaded = sys.modules.get(name)
        if loaded is None:
            continue
        other = getattr(loaded, "__file__", None) or "Python itself"
        if other == str(folder / file) and name not in _main_modules():
            # Another file of the user has imported the same helper.
            continue
        raise AblateError(
            f"with {source.path}: {file} and {other} would both be the module"
            f" '{name}'; rename one of these two files"
        )


def _main_modules() -> set[str]:
    """The names of the files that parts were loaded from."""
    return {Path(source.path).stem for source in _sources.values()}


@contextlib.contextmanager
def _readable(source: str) -> Iterator[None]:
    """Turns an error of a user's file into one message with its line."""
    try:
        yield
    except AblateError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            where = f"{error.filename}:{error.lineno}"
        raise AblateError(
            f"with {source}: {where}: {type(error).__name__}: {error}"
        ) from error


def _add(source: Source, key: str, module: ModuleType) -> None:
    """Adds the parts at the top level of a module."""
    parts: dict[tuple[str, str], Part] = {}
    others = [part.record for part in _parts.values()] + _built_in()
    for variable, record in list(vars(module).items()):
        kind = getattr(type(record), "part", None)
        # A module may import built-in parts, and those of another file.
        if kind not in KINDS or any(record is other for other in others):
            continue
        if not record.name:
            # A frozen record takes its name from its variable.
            object.__setattr__(record, "name", variable)
        if any(part.record is record for part in parts.values()):
            continue
        other = _parts.get((kind, record.name)) or parts.get((kind, record.name))
        if other is not None:
            raise AblateError(
                f"with {key}: a {kind} '{record.name}' is declared by"
                f" {other.source.path} already; rename one of them"
            )
        parts[kind, record.name] = Part(kind, record.name, record, source)
    problems = [getattr(part.record, "problem", "") for part in parts.values()]
    if problems and all(problems):
        raise AblateError(f"with {key}: {problems[0]}")
    for part in parts.values():
        _refuse_unseen(part)
    if not parts and not source.module:
        raise AblateError(
            f"with {key}: the file declares no part, such as a Factor or a function"
            " with @ablate.trainer"
        )
    _sources[key] = source
    _parts.update(parts)
    _changed()


def _refuse_unseen(part: Part) -> None:
    """Raises AblateError if nothing of what a command runs is in its identity."""
    words = getattr(part.record, "command", ())
    if not words or part.record.revision is not None:
        return
    if not _scripts(part.record, Path(part.source.path).parent):
        raise AblateError(
            f"with {part.source.path}: trainer {part.name}: its command names no file"
            f" in {Path(part.source.path).parent}, so old results would stay valid"
            " when your program changes; write the path of the script in the command,"
            " or declare a revision, as in revision=1"
        )


def _built_in() -> list[Any]:
    """The parts of this package, as far as they are imported."""
    return _records_of(
        tuple(name for name in sys.modules if name.startswith("ablate."))
    )


@lru_cache(maxsize=1)
def _records_of(modules: tuple[str, ...]) -> list[Any]:
    return [
        value
        for name in modules
        for value in vars(sys.modules[name]).values()
        if getattr(type(value), "part", None) in KINDS
    ]


def _forget(source: Source) -> None:
    key = source.module or source.path
    _sources.pop(key, None)
    for name in [name for name, part in _parts.items() if part.source == source]:
        del _parts[name]
    for module in finder.forget(source):
        loaded = sys.modules.get(module)
        if isinstance(getattr(loaded, "__loader__", None), Loader):
            del sys.modules[module]
    folder = str(Path(source.path).parent)
    if folder in sys.path:
        sys.path.remove(folder)
    importlib.invalidate_caches()
    _changed()


def _changed() -> None:
    for remembering in _caches:
        remembering.cache_clear()
