"""What a Python file means: its syntax tree without what cannot change a result.

Comments, formatting, docstrings and calls of `breakpoint()` do not count. All else does:
constants, imports, decorators, annotations, and the order of definitions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ablate.identity import content_hash, text_hash

# A file that uses one of these names may read its own docstrings, comments or text.
READS_ITSELF = frozenset(
    "__doc__ __loader__ __spec__ get_source getdoc getsource getsourcelines getcomments"
    " findsource linecache inspect doctest tokenize jit".split()
)
# A module, class or function begins with its docstring.
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def syntax_hash(files: Mapping[str, str]) -> str:
    """A hash that is equal for files of equal meaning.

    Args:
        files: texts by name. The empty name is that of a Python file, too.
    """
    return content_hash(
        {name: file_hash(name, text) for name, text in sorted(files.items())}
    )


def file_hash(name: str, text: str) -> str:
    """The hash of one file's meaning."""
    if name and not name.endswith(".py"):
        return text_hash(text)
    return _python_hash(text)


@lru_cache(maxsize=4096)
def _python_hash(text: str) -> str:
    try:
        tree = ast.parse(text)
        if _reads_itself(set(_names(tree))):
            return text_hash(text)
        _remove(tree, breakpoints="breakpoint" not in set(_bound(tree)))
        return text_hash("".join(_written(tree)))
    except (SyntaxError, ValueError, RecursionError):
        # Python may not run it at all; a program may read it.
        return text_hash(text)


def _names(tree: ast.AST) -> Iterator[str]:
    """All names, attributes and imported names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # As in getattr(module, "__doc__").
            yield node.value


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives a meaning of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, WITH_DOCSTRING) and not isinstance(node, ast.Module):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            # A star may bind any name.
            yield node.asname or node.name
            if node.name == "*":
                yield "breakpoint"


def _reads_itself(names: set[str]) -> bool:
    """Whether a file with these names may read its own text."""
    if names & READS_ITSELF:
        return True
    reads = any(name == "open" or name.startswith("read") for name in names)
    return "__file__" in names and reads


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
                kept = [one for one in statements if not _is_breakpoint(one)]
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
        and node.value.func.id == "breakpoint"
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
