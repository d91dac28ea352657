"""What Python files mean: their syntax trees without what cannot change a result.

Comments, formatting, docstrings and calls of `breakpoint()` do not count. All else does:
constants, imports, decorators, annotations, and the order of definitions. If any of the
files may read docstrings, comments or line numbers, all of them count as they are
(`why_texts_count`). Not seen is a program that lists a folder and reads all files in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from ablate.errors import shortened
from ablate.identity import content_hash, text_hash

# Names by which a program reads docstrings, texts or line numbers, its own or those of
# another file. The last line has packages that do so.
READS_TEXT = frozenset(
    "__doc__ __loader__ __spec__ __code__ get_source getdoc getsource getsourcelines"
    " getcomments findsource linecache inspect doctest pydoc pkgutil f_lineno"
    " co_firstlineno co_consts tb_lineno jit"
    " defopt docopt plac ply sly dspy".split()
)
# A module, class or function begins with its docstring.
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# What Python itself reads of comments: the program to run, and the encoding.
SHEBANG = re.compile(r"#!.*")
ENCODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
BREAKPOINT = "breakpoint"
# What a file may be used for, beside its names.
FILE, ARGV, UNREADABLE = "=__file__", "=argv", "=unreadable"
# Functions of a path that return the same path.
PATHS = frozenset(
    "Path PurePath str fspath abspath realpath normpath expanduser".split()
)


def syntax_hash(files: Mapping[str, str]) -> str:
    """A hash that is equal for files of equal meaning.

    Args:
        files: texts by name. The empty name is that of a Python file, too.
    """
    return content_hash(file_hashes(files))


def file_hashes(files: Mapping[str, str]) -> dict[str, str]:
    """The hash of each file's meaning, by name."""
    return dict(_hashes(tuple(sorted(files.items()))))


@lru_cache(maxsize=256)
def _hashes(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    # A plan asks for them once per cell.
    files = dict(items)
    if why_texts_count(files):
        return {name: text_hash(text) for name, text in files.items()}
    names = _all_names(files)
    # Someone may have given the name another meaning.
    keeps = f"={BREAKPOINT}" in names or "breakpointhook" in names
    return {
        name: _python_hash(text, keeps) if _is_python(name) else text_hash(text)
        for name, text in files.items()
    }


def _is_python(name: str) -> bool:
    return not name or name.endswith(".py")


def _all_names(files: Mapping[str, str]) -> set[str]:
    return {
        name
        for file, text in files.items()
        if _is_python(file)
        for name in _names_in(text)
    }


def why_texts_count(files: Mapping[str, str]) -> str:
    """Returns why comments and docstrings of files count; empty: they do not.

    Args:
        files: texts by name, as in `syntax_hash`.
    """
    names = _all_names(files)
    if UNREADABLE in names:
        return "a file is no Python that this version reads"
    readers = sorted(names & READS_TEXT)
    readers += sorted({"__doc__" for name in names if "__doc__" in name} - {*readers})
    if readers:
        return f"{', '.join(readers[:3])} may read them"
    reads = any(
        name == "open" or name.startswith(("read", "get_data")) for name in names
    )
    places = sorted(name.removeprefix("=") for name in names & {FILE, ARGV})
    places += sorted(name for name in names if name.endswith(".py"))
    if reads and places:
        return f"a file reads texts, and names {shortened(places[0])}"
    return ""


@lru_cache(maxsize=4096)
def _names_in(text: str) -> frozenset[str]:
    """All names, attributes, imported names and strings; `=NAME` for one it binds."""
    try:
        tree = ast.parse(text)
        return frozenset({*_names(tree), *_own_files(tree)})
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # What it reads is not known, so it may read the docstrings of the others.
        return frozenset({UNREADABLE})


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if field in ("id", "attr", "name", "asname", "arg", "module", "rest"):
                yield from str(value).split(".")
                if field != "module" and not isinstance(
                    getattr(node, "ctx", None), ast.Load
                ):
                    yield f"={value}"
        if isinstance(node, ast.alias) and node.name == "*":
            # It may bind any name.
            yield f"={BREAKPOINT}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # As in getattr(module, "__doc__").
            yield node.value
            if node.value in ("__file__", "argv"):
                yield f"={node.value}"
            if node.value == BREAKPOINT:
                yield f"={BREAKPOINT}"


def _own_files(tree: ast.AST) -> Iterator[str]:
    """Yields FILE where `__file__` may be a file to read, and ARGV for `sys.argv[0]`.

    The folder of a file, as in `Path(__file__).parent / "data.txt"`, is no file.
    """
    parents = {
        child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name == "__file__" and not _is_folder(node, parents, tree):
            yield FILE
        elif name == "argv" and not _is_argument(node, parents):
            yield ARGV


def _is_argument(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether of sys.argv only what follows the name of the script is read."""
    parent = parents.get(node)
    if isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "len":
        return True
    if not isinstance(parent, ast.Subscript):
        return False
    place = parent.slice
    if isinstance(place, ast.Slice):
        place = place.lower or place
    return isinstance(place, ast.Constant) and place.value not in (0, None)


def _is_folder(
    node: ast.AST, parents: Mapping[ast.AST, ast.AST], tree: ast.AST, depth: int = 0
) -> bool:
    """Whether only the folder of a path to a Python file is used, or its stem."""
    parent = parents.get(node)
    if isinstance(parent, ast.Attribute):
        call = parents.get(parent)
        if isinstance(call, ast.Call) and call.func is parent:
            if parent.attr in ("with_name", "with_suffix"):
                # Another file beside it. Names that end in .py are seen elsewhere.
                return all(isinstance(value, ast.Constant) for value in call.args)
            is_same = parent.attr in ("resolve", "absolute", "expanduser")
            return is_same and _is_folder(call, parents, tree, depth)
        return parent.attr in ("parent", "parents", "stem")
    if isinstance(parent, ast.Call) and parent.args == [node]:
        name = getattr(parent.func, "attr", None) or getattr(parent.func, "id", "")
        is_path = name in PATHS and _is_folder(parent, parents, tree, depth)
        return name == "dirname" or is_path
    if not isinstance(parent, ast.Assign) or len(parent.targets) > 1 or depth:
        return False
    target = parent.targets[0]
    uses = [
        use
        for use in ast.walk(tree)
        if isinstance(use, ast.Name)
        and use.id == getattr(target, "id", None)
        and use is not target
    ]
    return isinstance(target, ast.Name) and all(
        _is_folder(use, parents, tree, depth + 1) for use in uses
    )


@lru_cache(maxsize=4096)
def _python_hash(text: str, keeps_breakpoints: bool) -> str:
    try:
        tree = ast.parse(text)
        _remove(tree, breakpoints=not keeps_breakpoints)
        return text_hash("".join((*_header(text), *_written(tree))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Python may not run it at all; a program may read it.
        return text_hash(text)


def _header(text: str) -> Iterator[str]:
    """The comments that Python reads."""
    for number, line in enumerate(text.splitlines()[:2]):
        if number == 0 and SHEBANG.match(line):
            yield f"{line}\n"
        encoding = ENCODING.match(line)
        if encoding:
            yield f"coding: {encoding[1]}\n"


def _remove(tree: ast.AST, *, breakpoints: bool) -> None:
    """Removes docstrings, and if asked the calls of breakpoint()."""
    for node in ast.walk(tree):
        if isinstance(node, WITH_DOCSTRING) and _is_docstring(node.body):
            node.body = node.body[1:]
        if not breakpoints:
            continue
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                kept = [
                    statement
                    for statement in statements
                    if not _is_breakpoint(statement)
                ]
                setattr(node, field, kept)


def _is_docstring(body: list[ast.stmt]) -> bool:
    return (
        bool(body)
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    )


def _is_breakpoint(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == BREAKPOINT
        and not node.value.args
        and not node.value.keywords
    )


def _written(node: object) -> Iterator[str]:
    """A text of a tree: equal in all versions of Python.

    `ast.dump` is not: versions differ in the empty fields that they write. `repr` of a
    text is not, either: versions differ in the characters that they print.
    """
    if isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            if value is None and not isinstance(node, ast.Constant):
                continue
            if value == [] or name in ("type_comment", "kind", "type_ignores"):
                continue
            if isinstance(node, ast.JoinedStr):
                value = _joined(node.values)
            yield f"{name}="
            yield from _written(value)
            yield ","
        yield ")"
    elif isinstance(node, list):
        yield "["
        for value in node:
            yield from _written(value)
            yield ","
        yield "]"
    else:
        yield ascii(node)


def _joined(values: Sequence[ast.expr]) -> list[ast.expr]:
    """Returns the parts of an f-string; versions of Python divide its text differently."""
    parts: list[ast.expr] = []
    for value in values:
        if not isinstance(value, ast.Constant):
            parts.append(value)
        elif parts and isinstance(parts[-1], ast.Constant):
            parts[-1] = ast.Constant(str(parts[-1].value) + str(value.value))
        elif value.value:
            parts.append(value)
    return parts
