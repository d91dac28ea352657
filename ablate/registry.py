"""Parts that users add from their own files: factors, backbones, data sets, trainers, ...

There are three ways in: `--with FILE` on the command line, `with = ["FILE"]` under
`[tool.ablate]` in the pyproject.toml of the working directory, and the entry-point group
`ablate` of an installed package. Each leads to a Python module. The parts are the
records that it holds at its top level, so nothing has to be registered. A space, a
checkpoint or a store never names a module to import.

The content of a part's files is part of the identity of every trial that uses the part,
unless the part declares a `revision`, which then takes its place. Workers get the content
from the driver, so they never run other code than the driver planned with.
"""

from __future__ import annotations

import ast
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

from ablate.errors import AblateError
from ablate.identity import content_hash

# What a part can be. The class of a part has one of these as its attribute `part`.
KINDS = (
    "factor",
    "backbone",
    "data set",
    "loss",
    "metric",
    "diagnostic",
    "trainer",
)
ENTRY_POINTS = "ablate"


class PartRecord(Protocol):
    """What every part has. A name that is empty is that of its variable."""

    part: ClassVar[str]

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> int | str | None:
        """Declared by its author; None: the content of its files counts instead."""


@dataclass(frozen=True)
class Source:
    """A file of parts, with the modules beside it that it imports.

    Attributes:
        path: the file.
        files: the text of each file, by its path below the folder of `path`.
        module: the name of an installed module; empty for a file that a user names.
    """

    path: str
    files: Mapping[str, str]
    module: str = ""

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """The file of each module, by the module's dotted name."""
        return {_dotted(file): file for file in self.files}

    @cached_property
    def hash(self) -> str:
        """Equal for equal content, wherever the files are.

        The name of the file itself does not count; those of other modules are imported.
        """
        own = Path(self.path).name
        if self.module:
            return content_hash(dict(self.files))
        texts = {name: text for name, text in self.files.items() if name != own}
        return content_hash({**texts, "": self.files[own]})


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
        scripts = _scripts(self.record, Path(self.source.path).parent)
        if not scripts:
            return self.source.hash
        return content_hash({**self.source.files, **scripts})


def _scripts(record: Any, folder: Path) -> dict[str, str]:
    """The text of the files in a trainer's command, and of what scripts import.

    A word with a place, such as `train_{norm}.py`, stands for all files that fit.
    """
    texts: dict[str, str] = {}
    words = getattr(record, "command", ())
    for before, word in zip(("", *words), words, strict=False):
        for path in _files_in(word, folder, is_module=before == "-m"):
            if path.suffix == ".py":
                found = _read(path, path.parent)
            else:
                # Perhaps a large file of data.
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                found = {path.name: digest}
            texts |= {f"{word}: {name}": text for name, text in found.items()}
    return texts


def _files_in(word: str, folder: Path, *, is_module: bool) -> list[Path]:
    """The files that a word of a command names."""
    if is_module:
        return [path.resolve() for path in _files_of(word, folder)]
    pattern = re.sub(r"\{[^{}]*\}", "*", word)
    if not pattern.strip("*") or "{checkpoint}" in word:
        # Nothing but a level, or a file that the script writes.
        return []
    if Path(pattern).is_absolute():
        # A program or a file elsewhere.
        found = [Path(pattern)] if Path(pattern).suffix else []
    else:
        found = sorted(folder.glob(pattern))
    return [path.resolve() for path in found if path.is_file()]


_parts: dict[tuple[str, str], Part] = {}
_sources: dict[str, Source] = {}
_caches: list[Any] = []
# The files that the user named for this command, as they were typed.
_named: list[str] = []

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


def identity(kind: str, record: PartRecord) -> dict[str, str]:
    """What a part adds to the identity of a trial that uses it.

    It is empty for a built-in part of revision 1, so that adding this mechanism changed
    no hash.
    """
    own = _parts.get((kind, record.name))
    if own is not None:
        return {f"{kind} {record.name}": own.identity}
    if record.revision in (None, 1):
        return {}
    return {f"{kind} {record.name}": f"revision {record.revision}"}


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
    for name, wanted in code.items():
        # Revisions of built-in parts are those of this version.
        if name in here and here[name] != wanted:
            raise AblateError(
                f"the files of the {name} changed while the study runs, or differ on this"
                " machine; run the study again, with the same files on all nodes"
            )


def sources() -> tuple[Source, ...]:
    """All files that parts were loaded from, for workers."""
    return tuple(_sources.values())


def clear() -> None:
    """Forgets all parts of users."""
    _named.clear()
    for source in list(_sources.values()):
        _forget(source)


def load_all(files: Sequence[str]) -> None:
    """Loads files, what pyproject.toml names, and what installed packages offer.

    Raises:
        AblateError: a file is missing, fails, or declares no part.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        _load_entry(entry)
    for file in (*_named_by_project(), *files):
        load_file(file)
    _named[:] = files


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
        raise AblateError(f"with {file}: there is no such file")
    if path.suffix != ".py":
        raise AblateError(f"with {file}: not a Python file; its name must end in .py")
    source = Source(str(path), _read(path, path.parent))
    known = _sources.get(source.path)
    if known is not None and known.hash == source.hash:
        return known
    if known is not None:
        _forget(known)
    _import_and_add(source, path)
    return source


def load_sources(wanted: Sequence[Source]) -> None:
    """Makes a worker's parts those of the driver.

    The content decides: if a file here is missing or differs, the driver's content is
    written to a temporary folder and loaded from there.

    Raises:
        AblateError: an installed package differs from that of the driver.
    """
    for source in wanted:
        if source.module:
            _load_installed(source)
            continue
        known = _sources.get(source.path)
        if known is not None and known.hash == source.hash:
            continue
        if known is not None:
            _forget(known)
        path = Path(source.path)
        if not _is_equal(path, source):
            path = _written(source)
        _import_and_add(source, path)


def _load_installed(source: Source) -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.module == source.module:
            _load_entry(entry)
    known = _sources.get(source.module)
    if known is None or known.hash != source.hash:
        raise AblateError(
            f"the installed package of {source.module} on this machine is not that of"
            " the driver; install the same version"
        )


def _is_equal(path: Path, source: Source) -> bool:
    if not path.is_file():
        return False
    return Source(str(path), _read(path, path.parent)).hash == source.hash


def _written(source: Source) -> Path:
    """The driver's content in a temporary folder of this process."""
    folder = Path(tempfile.mkdtemp(prefix="ablate-parts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in source.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder / Path(source.path).name


def _named_by_project() -> list[str]:
    """The files under `with` in `[tool.ablate]` of ./pyproject.toml."""
    project = Path("pyproject.toml")
    if not project.is_file():
        return []
    try:
        said = tomllib.loads(project.read_text()).get("tool", {}).get("ablate", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Other tools report a broken project file.
        return []
    named = said.get("with", [])
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise AblateError(
            "pyproject.toml: [tool.ablate] with must be a list of files, as in with ="
            ' ["mine.py"]'
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
    source = Source(str(path), _read(path, root, only=top), module=entry.module)
    _add(source, entry.module, module)


def _import_and_add(source: Source, path: Path) -> None:
    _refuse_loaded(source, path.parent)
    # As for a script: what lies beside the file can be imported.
    sys.path.insert(0, str(path.parent))
    _finder.add(source, path.parent)
    try:
        # Prints of the file must not mix with the results on stdout.
        with _readable(source.path), contextlib.redirect_stdout(sys.stderr):
            module = importlib.import_module(path.stem)
        _add(source, source.path, module)
    except BaseException:
        # Also after Ctrl-C: half a file must not stay loaded.
        _forget(source)
        raise


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
            f"with {source.path}: {file} needs the module name '{name}', which {other}"
            " has; give the file another name"
        )


def _main_modules() -> set[str]:
    """The names of the files that parts were loaded from."""
    return {Path(source.path).stem for source in _sources.values()}


class _Loader(importlib.abc.Loader):
    """Runs the text that was read, not a file or its compiled form on the disk."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._text, str(self._path), "exec"), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of users' files: with the text that their identity covers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Path, str]] = {}

    def add(self, source: Source, folder: Path) -> None:
        for name, file in source.modules.items():
            self._known[name] = (source.path, folder / file, source.files[file])

    def forget(self, source: Source) -> list[str]:
        """Returns the names of the modules that it no longer finds."""
        names = [name for name, one in self._known.items() if one[0] == source.path]
        for name in names:
            del self._known[name]
        return names

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._known:
            return None
        _, file, text = self._known[fullname]
        places = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=_Loader(file, text),
            submodule_search_locations=places,
        )


_finder = _Finder()
sys.meta_path.insert(0, _finder)


@contextlib.contextmanager
def _readable(place: str) -> Iterator[None]:
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
            f"with {place}: {where}: {type(error).__name__}: {error}"
        ) from error


def _add(source: Source, key: str, module: ModuleType) -> None:
    """Adds the parts at the top level of a module."""
    found: dict[tuple[str, str], Part] = {}
    others = [part.record for part in _parts.values()] + _built_in()
    for variable, record in list(vars(module).items()):
        kind = getattr(type(record), "part", None)
        # A module may import built-in parts, and those of another file.
        if kind not in KINDS or any(record is other for other in others):
            continue
        if not record.name:
            # A frozen record takes its name from its variable.
            object.__setattr__(record, "name", variable)
        if any(part.record is record for part in found.values()):
            continue
        other = _parts.get((kind, record.name)) or found.get((kind, record.name))
        if other is not None:
            raise AblateError(
                f"with {key}: a {kind} '{record.name}' is declared by"
                f" {other.source.path} already; rename one of them"
            )
        found[kind, record.name] = Part(kind, record.name, record, source)
    for part in found.values():
        _refuse_unseen(part)
    if not found and not source.module:
        raise AblateError(
            f"with {key}: the file declares no part, such as a Factor or a function"
            " with @ablate.trainer"
        )
    _sources[key] = source
    _parts.update(found)
    _changed()


def _refuse_unseen(part: Part) -> None:
    """Raises AblateError if nothing of what a command runs is in its identity."""
    words = getattr(part.record, "command", ())
    if not words or part.record.revision is not None:
        return
    if not _scripts(part.record, Path(part.source.path).parent):
        raise AblateError(
            f"with {part.source.path}: trainer {part.name}: no word of its command names"
            f" a file in {Path(part.source.path).parent}, so a changed program would"
            " keep old results; name the script, or declare a revision, as in"
            " revision=1"
        )


def _built_in() -> list[Any]:
    """The parts of this package, as far as they are imported."""
    records = []
    for name, module in list(sys.modules.items()):
        if name.startswith("ablate."):
            for value in vars(module).values():
                if getattr(type(value), "part", None) in KINDS:
                    records.append(value)
    return records


def _forget(source: Source) -> None:
    key = source.module or source.path
    _sources.pop(key, None)
    for name in [name for name, part in _parts.items() if part.source == source]:
        del _parts[name]
    for module in _finder.forget(source):
        loaded = sys.modules.get(module)
        if isinstance(getattr(loaded, "__loader__", None), _Loader):
            del sys.modules[module]
    folder = str(Path(source.path).parent)
    if folder in sys.path:
        sys.path.remove(folder)
    importlib.invalidate_caches()
    _changed()


def _changed() -> None:
    for remembering in _caches:
        remembering.cache_clear()


def _read(file: Path, root: Path, only: str = "") -> dict[str, str]:
    """The text of a file and of the modules that it imports from below a folder.

    Imports inside functions count, and those of imported modules. Imports by computed
    names are not seen.

    Args:
        root: the folder from which modules are imported.
        only: the top-level package to stay in; empty: any module below the folder.
    """
    texts: dict[str, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name in texts:
            continue
        try:
            # Python accepts the mark with which some editors begin a file.
            texts[name] = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise AblateError(f"with {file}: {path} cannot be read: {error}") from error
        with contextlib.suppress(SyntaxError):
            for dotted in _imports(texts[name], path, root):
                top = dotted.partition(".")[0]
                # This package itself may lie beside the file, in its checkout.
                if top != "ablate" and only in ("", top):
                    waiting += _files_of(dotted, root)
    return dict(sorted(texts.items()))


def _dotted(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(text: str, path: Path, root: Path) -> Iterator[str]:
    """The dotted names that a module may import."""
    package = path.parent.relative_to(root).parts
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *filter(None, [node.module])))
            if base:
                yield base
            for alias in node.names:
                # `from a import b` may import the module a.b.
                yield f"{base}.{alias.name}" if base else alias.name


def _files_of(dotted: str, root: Path) -> Iterator[Path]:
    """The files that importing a dotted name runs, as far as they are below a folder."""
    parts = dotted.split(".")
    for length in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:length])
        for candidate in (place.with_suffix(".py"), place / "__init__.py"):
            if candidate.is_file() and os.access(candidate, os.R_OK):
                yield candidate
