"""The modules of users' files: which text they have, and how it is run.

The text of a file and of the modules beside it that it imports is read once. It gives the
identity, and it is what runs: not the file on the disk, which may change meanwhile, and
not its compiled form, which may be older.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ablate.errors import AblateError
from ablate.identity import content_hash


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
    # The identities of its parts by their syntax, as the driver's store knows them.
    identities: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """The file of each module, by the module's dotted name."""
        return {_dotted(file): file for file in self.files}

    @cached_property
    def hash(self) -> str:
        """Equal for equal content, wherever the files are.

        The name of the file itself does not count; those of other modules are imported.
        """
        return content_hash(self.texts)

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file; that of the file itself has no name."""
        file_name = Path(self.path).name
        if self.module:
            return dict(self.files)
        texts = {name: text for name, text in self.files.items() if name != file_name}
        return {**texts, "": self.files[file_name]}


class Loader(importlib.abc.Loader):
    """Runs the text that was read, not a file or its compiled form on the disk."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._text, str(self._path), "exec"), module.__dict__)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of users' files: with the text that their identity covers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Path, str]] = {}

    def add(self, source: Source, folder: Path) -> None:
        for name, file in source.modules.items():
            self._known[name] = (source.path, folder / file, source.files[file])

    def forget(self, source: Source) -> list[str]:
        """Returns the names of the modules that it no longer finds."""
        names = [name for name, entry in self._known.items() if entry[0] == source.path]
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
            loader=Loader(file, text),
            submodule_search_locations=places,
        )


finder = Finder()
sys.meta_path.insert(0, finder)


def read(file: Path, root: Path, only: str = "") -> dict[str, str]:
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
                    waiting += files_of(dotted, root)
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


def files_of(dotted: str, root: Path) -> Iterator[Path]:
    """The files that importing a dotted name runs, as far as they are below a folder."""
    parts = dotted.split(".")
    for length in range(1, len(parts) + 1):
        path = root.joinpath(*parts[:length])
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file() and os.access(candidate, os.R_OK):
                yield candidate
