"""Repositories that would run a program, or write where they should not."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from ablate.errors import AblateError
from ablate.own.commits import tree_of, written
from tests.commits.repository import (
    MODEL,
    branch,
    commit,
    git,
    make_repository,
    state,
    write,
)

HOOKS = (
    "post-checkout",
    "post-index-change",
    "pre-commit",
    "reference-transaction",
    "post-applypatch",
    "fsmonitor-watchman",
)


def armed(repository: Path, trap: Path) -> None:
    """Makes everything that git may run leave a trace."""
    program = repository.parent / "program"
    program.write_text(f"#!/bin/sh\necho $0 $@ >> '{trap}'\ncat\n")
    program.chmod(0o755)
    for hook in HOOKS:
        place = repository / ".git/hooks" / hook
        place.parent.mkdir(exist_ok=True)
        place.write_text(program.read_text())
        place.chmod(0o755)
    settings = {
        "core.fsmonitor": program,
        "core.hooksPath": repository / ".git/hooks",
        "core.pager": program,
        "core.editor": program,
        "core.sshCommand": program,
        "core.alternateRefsCommand": program,
        "credential.helper": f"!{program}",
        "diff.external": program,
        "diff.trap.command": program,
        "diff.trap.textconv": program,
        "filter.trap.clean": program,
        "filter.trap.smudge": program,
        "filter.trap.process": program,
        "filter.trap.required": "true",
        "merge.trap.driver": program,
        "gpg.program": program,
        "log.showSignature": "true",
        "uploadpack.packObjectsHook": program,
        "alias.cat-file": f"!{program}",
        "alias.ls-tree": f"!{program}",
        "core.autocrlf": "true",
        "submodule.recurse": "true",
        "apply.whitespace": "fix",
    }
    for name, value in settings.items():
        git(repository, "config", name, str(value))


@pytest.mark.parametrize("name", ["main", "better", "worktree", "my.patch"])
def test_nothing_of_a_repository_runs_and_nothing_of_it_changes(
    tmp_path: Path, name: str
) -> None:
    repository = make_repository(tmp_path / "repository")
    # The attributes are committed before anything is armed.
    texts = {
        ".gitattributes": "* filter=trap diff=trap merge=trap text ident export-subst\n"
        "model.py export-ignore\n",
        "lines.txt": "a \r\nb\n",
        "ident.txt": "$Id$ $Format:%H$\n",
    }
    write(repository, texts)
    commit(repository, "attributes")
    write(repository, {"model.py": MODEL.replace("1.0", "2.0")})
    patch = git(repository, "diff")
    git(repository, "checkout", "--quiet", "model.py")
    (repository / "my.patch").write_text(f"{patch}\n")
    trap = tmp_path / "trap"
    armed(repository, trap)
    before = state(repository)
    # Seconds later, git would refresh its index.
    (repository / "train.py").touch()
    made = tree_of(str(repository), name)
    folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
    assert state(repository) == before
    assert not trap.exists(), trap.read_text()
    assert (folder / "model.py").is_file()
    if name in ("main", "my.patch"):
        assert (folder / "ident.txt").read_text() == texts["ident.txt"]
    if name == "main":
        # Exactly as it was committed, before the settings changed.
        assert (folder / "lines.txt").read_bytes() == b"a \nb\n"


def test_a_submodule_is_neither_fetched_nor_entered(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    inner = make_repository(tmp_path / "inner")
    oid = git(inner, "rev-parse", "HEAD")
    write(
        repository,
        {
            ".gitmodules": f'[submodule "m"]\n\tpath = m\n\turl = {inner}\n\tupdate = !touch x\n'
        },
    )
    git(repository, "add", ".gitmodules")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{oid},m")
    git(repository, "commit", "--quiet", "--message", "submodule")
    for name in ("main", "worktree"):
        made = tree_of(str(repository), name)
        folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
        assert not (folder / "m").exists()
        assert (folder / "model.py").is_file()


def raw_tree(repository: Path, *entries: tuple[str, str, str]) -> str:
    """Commits a tree that git itself would refuse: of (mode, name, object)."""
    content = b"".join(
        f"{mode} {name}".encode() + b"\0" + bytes.fromhex(oid)
        for mode, name, oid in entries
    )
    made = git(
        repository,
        "hash-object",
        "-w",
        "-t",
        "tree",
        "--literally",
        "--stdin",
        stdin=content,
    )
    return git(repository, "commit-tree", made, "-m", "odd")


@pytest.mark.parametrize("name", ["..", ".git", "../evil", "/evil"])
def test_a_tree_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    repository = make_repository(tmp_path / "repository")
    blob = git(repository, "rev-parse", "main:model.py")
    if name in ("..", ".git"):
        inner = git(repository, "mktree", stdin=f"100644 blob {blob}\tevil\n")
        made = raw_tree(repository, ("40000", name, inner))
    else:
        made = raw_tree(repository, ("100644", name, blob))
    with pytest.raises(AblateError, match="has a file"):
        tree_of(str(repository), made)


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    outside = tmp_path / "outside"
    outside.mkdir()
    blob = git(repository, "rev-parse", "main:model.py")
    link = git(repository, "hash-object", "-w", "--stdin", stdin=str(outside))
    inner = git(repository, "mktree", stdin=f"100644 blob {blob}\tevil\n")
    made = raw_tree(repository, ("120000", "a", link), ("40000", "a", inner))
    found = tree_of(str(repository), made)
    with pytest.raises(AblateError, match="cannot be written"):
        written(found.identity, tmp_path / "commits", ())
    assert not list(outside.iterdir())
    assert [path.name for path in (tmp_path / "commits").iterdir()] == [".gitignore"]


def test_a_replaced_object_does_not_count(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    right = tree_of(str(repository), "main").identity
    git(repository, "replace", "main", "better")
    assert tree_of(str(repository), "main").identity == right


def test_a_branch_that_looks_like_an_option_is_a_branch(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    oid = git(repository, "rev-parse", "better")
    git(repository, "update-ref", "refs/heads/-rf", oid)
    assert tree_of(str(repository), "-rf").commit == oid


def test_code_that_cannot_be_read_counts_by_its_bytes(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    (repository / "bytes.py").write_bytes(b"\xff\xfe = 1")
    write(repository, {"broken.py": "def (:\n", "deep.py": "(" * 3_000})
    commit(repository, "odd code")
    before = tree_of(str(repository), "main").identity
    (repository / "bytes.py").write_bytes(b"\xff\xfe = 2")
    commit(repository, "other bytes")
    assert tree_of(str(repository), "main").identity != before


def test_links_in_a_circle_are_written_as_links(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    (repository / "a").symlink_to("b")
    (repository / "b").symlink_to("a")
    (repository / "self").symlink_to(".")
    commit(repository, "links")
    for name in ("main", "worktree"):
        made = tree_of(str(repository), name)
        folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
        assert (folder / "self").is_symlink()


@pytest.mark.proof
def test_a_large_repository_is_read_in_seconds(tmp_path: Path) -> None:
    """2,000 files of code, 500 kB of it, and 64 MB of other files."""
    repository = make_repository(tmp_path / "repository")
    code = "".join(
        f"def f{number}(x):\n    return x + {number}\n" for number in range(9)
    )
    texts = {
        f"package/m{number}.py": f"y = {number}\n{code}" for number in range(2_000)
    }
    write(repository, texts)
    for number in range(4):
        (repository / f"weights{number}.bin").write_bytes(bytes([number]) * 16_000_000)
    commit(repository, "large")
    branch(repository, "changed", {"package/m7.py": "y = 8\n"})
    tracemalloc.start()
    began = time.perf_counter()
    first, second = (tree_of(str(repository), name) for name in ("main", "changed"))
    written(first.identity, tmp_path / "commits", ())
    taken = time.perf_counter() - began
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first.identity != second.identity
    # Measured: 8 s under the measurement of memory, 2.5 s without it.
    assert taken < 30
    assert most < 200e6
