"""What Python files mean: their syntax trees without what cannot change a result.

Comments, formatting, docstrings and calls of `breakpoint()` do not count. All else does:
constants, imports, decorators, annotations, and the order of definitions. If any of the
files may read docstrings, comments or line numbers, all of them count as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

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
    names: set[str] = set()
    for name, text in files.items():
        if _is_python(name):
            names |= _names_in(text)
    if _reads_text(names):
        return {name: text_hash(text) for name, text in files.items()}
    # Someone may have given the name another meaning.
    keeps = f"={BREAKPOINT}" in names or "breakpointhook" in names
    return {
        name: _python_hash(text, keeps) if _is_python(name) else text_hash(text)
        for name, text in files.items()
    }


def _is_python(name: str) -> bool:
    return not name or name.endswith(".py")


def _reads_text(names: set[str]) -> bool:
    """Whether a program with these names may read texts of its files."""
    if names & READS_TEXT or any("__doc__" in name for name in names):
        return True
    reads = any(
        name == "open" or name.startswith(("read", "get_data")) for name in names
    )
    files = {"__file__", "argv"} & names or any(name.endswith(".py") for name in names)
    return reads and bool(files)


@lru_cache(maxsize=4096)
def _names_in(text: str) -> frozenset[str]:
    """All names, attributes, imported names and strings; `=NAME` for one it binds."""
    try:
        return frozenset(_names(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        # What it reads is not known, so it may read the docstrings of the others.
        return frozenset({"__doc__"})


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
            if node.value == BREAKPOINT:
                yield f"={BREAKPOINT}"


@lru_cache(maxsize=4096)
def _python_hash(text: str, keeps_breakpoints: bool) -> str:
    try:
        tree = ast.parse(text)
        _remove(tree, breakpoints=not keeps_breakpoints)
        return text_hash("".join((*_header(text), *_written(tree))))
    except (SyntaxError, ValueError, RecursionError):
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

    `ast.dump` is not: versions differ in the empty fields that they write.
    """
    if isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            if value is None and not isinstance(node, ast.Constant):
                continue
            if value == [] or name in ("type_comment", "kind", "type_ignores"):
                continue
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
        yield repr(node)
