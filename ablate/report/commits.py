"""What commits of a study contain, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.own.commits import Tree

# The most files that a line names.
MOST_FILES = 5


def difference_lines(trees: Sequence[Tree]) -> list[str]:
    """Returns what each level stands for, and which files differ from the first one."""
    if not trees:
        return []
    lines = [f"{_what(trees[0])}{_left_out(trees[0])}"]
    for tree in trees[1:]:
        lines.append(f"{_what(tree)}: {_differs(tree, trees[0])}{_left_out(tree)}")
    return lines


def _what(tree: Tree) -> str:
    """A level, with the commit that it stands for."""
    commit = tree.commit[:10]
    if tree.on_disk:
        return f"{tree.name} is the tracked files as they are now, at {commit}"
    if tree.commit.startswith(tree.name):
        return f"{tree.name} is a commit"
    if tree.repository.objects:
        return f"{tree.name} changes {commit}"
    return f"{tree.name} is {commit}"


def _differs(tree: Tree, first: Tree) -> str:
    if tree.identity == first.identity:
        return f"trains the same as {first.name}"
    names = sorted({*tree.hashes, *first.hashes})
    files = [name for name in names if tree.hashes.get(name) != first.hashes.get(name)]
    shown = ", ".join(files[:MOST_FILES])
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    return f"differs from {first.name} in {shown}{more}"


def _left_out(tree: Tree) -> str:
    """Which Python files git does not track, so that no trial has them."""
    files = [name for name in tree.untracked if name.endswith(".py")]
    if not files:
        return ""
    shown = ", ".join(files[:MOST_FILES])
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    return f"; without {shown}{more}, which git does not track (git add them)"
