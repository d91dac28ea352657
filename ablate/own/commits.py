"""Commits as levels: what a command trains with is read from git, not from the checkout.

A level of the factor `commit` is a branch, a tag, another name of a commit, a patch file,
or `worktree`, the tracked files as they are now. What identifies it is the content of its
files: of Python files their meaning (`own.syntax`), of others every byte. So a level has
the same trials under each of its names, and a branch that moves has new ones.

A run writes the files of a level to a folder of its own (`written`), and the command runs
there. The checkout of the user is only read.
"""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ablate.errors import AblateError, did_you_mean, shortened
from ablate.own.git import (
    EXECUTABLE,
    LINK,
    SUBMODULE,
    Blob,
    Repository,
    blob_oid,
    repository_of,
)
from ablate.own.syntax import file_hashes, syntax_hash

# The name of the factor, and of the level that is no commit.
COMMIT = "commit"
WORKTREE = "worktree"
PATCHES = (".patch", ".diff")
# A Python file with more bytes is compared by its bytes, not by its meaning.
LARGEST_SOURCE = 2_000_000


@dataclass(frozen=True)
class Tree:
    """The files of a level.

    Attributes:
        name: the level, as it is written.
        commit: the commit, or the one that a patch or the worktree changes.
        repository: has the objects of the files.
        files: by path; the root of the repository is the empty path.
        folder: in which the command runs, below the root.
        share: paths that are linked to the checkout.
        identity: equal for trees that train alike.
    """

    name: str
    commit: str
    repository: Repository
    files: Mapping[str, Blob]
    folder: str
    share: tuple[str, ...]
    identity: str
    # The meaning of each file that counts.
    hashes: Mapping[str, str]
    # Whether the files are those of the checkout, not objects.
    on_disk: bool = False
    # What git does not track, if this is the worktree.
    untracked: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a path below the root is a file, or a folder with a file."""
        return path in self.files or any(
            name.startswith(f"{path}/") for name in self.files
        )

    def shares(self, path: str) -> bool:
        """Whether a path below the root is linked to the checkout."""
        return any(
            _is_below(path, place) for place in _below_root(self.folder, self.share)
        )


# The trees that levels of this process stand for, by folder and name.
_by_name: dict[tuple[str, str], Tree] = {}
_by_identity: dict[str, Tree] = {}
# By what it was made of, so that a tree is read once.
_known: dict[tuple[object, ...], Tree] = {}
# The folders with the objects of patches.
_temporary: list[Path] = []


def tree_of(
    folder: str, name: str, share: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Tree:
    """Returns the tree that a level stands for now.

    Args:
        folder: that of the file that declares the command.
        name: a branch, tag or commit, the path of a patch below `folder`, or `worktree`.
        share: paths below `folder` that are linked into the tree.
        ignore: patterns of files that do not count for the identity.

    Raises:
        AblateError: there is no such level, or it cannot be read.
    """
    if not name.strip() or not name.isprintable():
        raise AblateError(f"{shortened(repr(name))} is no name of a commit")
    repository = repository_of(Path(folder))
    inside = os.path.relpath(os.path.realpath(folder), repository.root)
    inside = "" if inside == "." else inside
    share, ignore = tuple(share), tuple(ignore)
    _refuse_ambiguous(repository, folder, name)
    if name == WORKTREE:
        tree = _worktree(repository, inside, share, ignore)
    elif name.endswith(PATCHES) and Path(folder, name).is_file():
        tree = _patch(repository, Path(folder, name), name, inside, share, ignore)
    else:
        tree = _commit(repository, name, inside, share, ignore)
    _by_name[folder, name] = tree
    _by_identity[tree.identity] = tree
    return tree


def last_tree_of(folder: str, name: str) -> Tree | None:
    """Returns the tree that a level stood for when it was read last, if it was."""
    return _by_name.get((folder, name))


@atexit.register
def forget() -> None:
    """Forgets all trees that were read."""
    while _temporary:
        shutil.rmtree(_temporary.pop(), ignore_errors=True)
    for known in (_by_name, _by_identity, _known, _compared):
        known.clear()


@dataclass(frozen=True)
class Checkout:
    """Where the files of a tree are.

    Attributes:
        folder: the command runs here.
        path: what Python looks for modules in, before all else.
    """

    folder: str
    path: tuple[str, ...]


def written(identity: str, folder: Path, search: Sequence[str]) -> Checkout:
    """Writes the files of a tree below a folder, unless they are there already.

    Args:
        folder: gets a folder for each tree.
        search: the folders in which this Python looks for modules. Those that are in the
            checkout are taken from the tree.

    Raises:
        AblateError: the tree is not known, or cannot be written.
    """
    target = folder.resolve() / identity
    tree = _by_identity.get(identity)
    if tree is None:
        raise AblateError(
            f"the commit with the files {identity} was not read; run the study again"
        )
    if not target.is_dir():
        _write(tree, target)
    _restore(tree, target)
    _link_shared(tree, target)
    root = tree.repository.root
    inside = [
        os.path.relpath(os.path.realpath(place), root)
        for place in search
        if place and Path(os.path.realpath(place)).is_relative_to(root)
    ]
    # A package below the checkout may be installed, and the tree has its own.
    places = [*inside, *(["src"] if tree.has("src") else []), "."]
    return Checkout(
        folder=str(target / tree.folder),
        path=tuple(dict.fromkeys(str(target / place) for place in places)),
    )


def _refuse_ambiguous(repository: Repository, folder: str, name: str) -> None:
    """Raises AblateError if a level could be a branch or something else."""
    is_file = name.endswith(PATCHES) and Path(folder, name).is_file()
    if (is_file or name == WORKTREE) and repository.has_branch(name):
        other = "the patch file" if is_file else "the files of the checkout"
        raise AblateError(
            f"{name} is a branch and {other}; rename the branch, or write"
            f" refs/heads/{name} for it"
        )
    branch = repository.commit(f"refs/heads/{name}")
    tag = repository.commit(f"refs/tags/{name}")
    if branch is not None and tag is not None and branch != tag:
        raise AblateError(
            f"{name} is a branch and a tag, and they are different commits; write"
            f" refs/heads/{name} or refs/tags/{name}"
        )


def _commit(
    repository: Repository,
    name: str,
    folder: str,
    share: tuple[str, ...],
    ignore: tuple[str, ...],
) -> Tree:
    commit = repository.commit(name)
    if commit is None:
        raise AblateError(_unknown(repository, name))
    key = ("commit", repository.root, commit, folder, share, ignore)
    if key not in _known:
        files = repository.files(commit)
        _known[key] = _tree(name, commit, repository, files, folder, share, ignore)
    return replace(_known[key], name=name)


def _unknown(repository: Repository, name: str) -> str:
    if repository.commit("HEAD") is None:
        return f"{repository.root} has no commit yet"
    if name.endswith(PATCHES):
        return (
            f"there is no patch file {name}, and no branch, tag or commit of this name"
        )
    names = repository.names()
    near = did_you_mean(name, names)
    shallow = ""
    if repository.is_shallow():
        shallow = " (this clone is shallow: git fetch --unshallow)"
    remote = f"origin/{name}"
    if remote in names:
        near = f"; did you mean {remote}?"
    return (
        f"{repository.root} has no branch, tag or commit {shortened(name)}{near}{shallow}; a patch"
        f" is a file that ends in .patch or .diff, and {WORKTREE} stands for the tracked"
        " files as they are now"
    )


def _patch(
    repository: Repository,
    patch: Path,
    name: str,
    folder: str,
    share: tuple[str, ...],
    ignore: tuple[str, ...],
) -> Tree:
    commit = repository.commit("HEAD")
    if commit is None:
        raise AblateError(_unknown(repository, "HEAD"))
    digest = blob_oid(patch.read_bytes(), 64)
    key = ("patch", repository.root, commit, digest, folder, share, ignore)
    if key not in _known:
        # Its objects are read when the tree is written.
        kept = Path(tempfile.mkdtemp(prefix="ablate-git-"))
        _temporary.append(kept)
        patched, tree = repository.patched(patch, kept)
        files = patched.files(tree)
        _known[key] = _tree(name, commit, patched, files, folder, share, ignore)
    return replace(_known[key], name=name)


def _worktree(
    repository: Repository, folder: str, share: tuple[str, ...], ignore: tuple[str, ...]
) -> Tree:
    files = {}
    for path in repository.tracked():
        blob = _blob_on_disk(repository.root / path, repository)
        if blob is not None:
            files[path] = blob
    tree = _tree(
        WORKTREE,
        repository.commit("HEAD") or "",
        repository,
        files,
        folder,
        share,
        ignore,
        on_disk=True,
    )
    shared = _below_root(folder, share)
    untracked = tuple(
        path
        for path in repository.untracked()
        if not any(_is_below(path, place) for place in shared)
    )
    return replace(tree, untracked=untracked)


def _blob_on_disk(path: Path, repository: Repository) -> Blob | None:
    """Returns a file of the checkout; None if it was removed, or is a submodule."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return Blob(LINK, blob_oid(os.fsencode(os.readlink(path)), 40))
    if not stat.S_ISREG(mode):
        return None
    is_executable = bool(mode & stat.S_IXUSR)
    try:
        oid = blob_oid(path.read_bytes(), 40)
    except OSError as error:
        raise AblateError(f"{path} cannot be read: {error}") from None
    return Blob(EXECUTABLE if is_executable else "100644", oid)


def _tree(
    name: str,
    commit: str,
    repository: Repository,
    files: Mapping[str, Blob],
    folder: str,
    share: tuple[str, ...],
    ignore: tuple[str, ...],
    *,
    on_disk: bool = False,
) -> Tree:
    for path in files:
        _refuse_unsafe(path, name)
    link = _link_at(folder, files)
    if link:
        raise AblateError(
            f"{name} has a link {link} in place of the folder in which the command runs"
        )
    for place in _below_root(folder, share):
        _refuse_share(place, name, files, repository.root)
    counting = {
        path: blob
        for path, blob in files.items()
        if blob.mode != SUBMODULE and not _is_ignored(path, ignore)
    }
    texts = {path: f"{blob.mode} {blob.oid}" for path, blob in counting.items()}
    sources = [path for path, blob in counting.items() if _is_source(path, blob)]
    contents = _contents(repository, sources, files, on_disk=on_disk)
    for path, content in zip(sources, contents, strict=True):
        if len(content) <= LARGEST_SOURCE:
            # Otherwise the name of its content stays.
            with contextlib.suppress(UnicodeDecodeError):
                texts[path] = content.decode("utf-8-sig")
    return Tree(
        name=name,
        commit=commit,
        repository=repository,
        files=files,
        folder=folder,
        share=share,
        identity=syntax_hash(texts),
        hashes=file_hashes(texts),
        on_disk=on_disk,
    )


def _is_source(path: str, blob: Blob) -> bool:
    return path.endswith(".py") and blob.mode != LINK


def _is_ignored(path: str, patterns: Sequence[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(path, pattern) or _is_below(path, pattern.rstrip("/"))
        for pattern in patterns
    )


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _below_root(folder: str, share: Sequence[str]) -> list[str]:
    """The shared paths, below the root of the repository."""
    return [os.path.normpath(os.path.join(folder, place)) for place in share]


def _refuse_unsafe(path: str, name: str) -> None:
    """Raises AblateError if a path would be written outside of a tree."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or ".git" in parts or "\0" in path:
        raise AblateError(f"{name}: the commit has a file {shortened(repr(path))}")


def _refuse_share(place: str, name: str, files: Mapping[str, Blob], root: Path) -> None:
    """Raises AblateError if a shared path is missing, or is in the commit too."""
    if _is_outside(place):
        raise AblateError(f"share: {place} is not below {root}")
    if not (root / place).exists():
        raise AblateError(f"share: there is no {root / place}")
    if any(_is_below(path, place) for path in files):
        raise AblateError(
            f"share: {place} is in {name} too; leave it out of share=, so that each"
            " commit trains with its own"
        )
    link = _link_at(os.path.dirname(place), files)
    if link:
        raise AblateError(
            f"share: {name} has a link {link}, so {place} would be linked elsewhere;"
            f" share {link} in a commit that does not have it, or remove the link"
        )


def _link_at(path: str, files: Mapping[str, Blob]) -> str:
    """Returns a path, or a folder above it, that is a link; empty if none is."""
    places = [path, *map(str, PurePosixPath(path).parents)]
    for place in places:
        if place in files and files[place].mode == LINK:
            return place
    return ""


def _contents(
    repository: Repository,
    paths: Sequence[str],
    files: Mapping[str, Blob],
    *,
    on_disk: bool,
) -> Iterator[bytes]:
    """The contents of files, in their order."""
    if not on_disk:
        yield from repository.contents(files[path].oid for path in paths)
        return
    for path in paths:
        place = repository.root / path
        try:
            if files[path].mode == LINK:
                content = os.fsencode(os.readlink(place))
            else:
                content = place.read_bytes()
        except OSError as error:
            raise AblateError(f"{place} cannot be read: {error}") from None
        if blob_oid(content, 40) != files[path].oid:
            raise AblateError(
                f"{place} changed while it was read; type the command again"
            )
        yield content


def _write(tree: Tree, target: Path) -> None:
    """Writes a tree at once: an interruption leaves nothing under its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # The folder may be in the checkout.
    hide_from_git(target.parent)
    making = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        making.chmod(0o755)
        # Links come last, so that no file is written through one.
        paths = sorted(
            (path for path, blob in tree.files.items() if blob.mode != SUBMODULE),
            key=lambda path: tree.files[path].mode == LINK,
        )
        contents = _contents(tree.repository, paths, tree.files, on_disk=tree.on_disk)
        for path, content in zip(paths, contents, strict=True):
            _put(making / path, content, tree.files[path], tree, path)
        (making / tree.folder).mkdir(parents=True, exist_ok=True)
        try:
            making.rename(target)
        except OSError:
            # Another driver has written it.
            if not target.is_dir():
                raise
    except OSError as error:
        raise AblateError(
            f"the files of {tree.name} cannot be written: {error}"
        ) from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _link_shared(tree: Tree, target: Path) -> None:
    """Links what the command shares; more may be shared than when a tree was written."""
    root = tree.repository.root
    for place in _below_root(tree.folder, tree.share):
        link = target / place
        _refuse_link_above(link, target)
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.exists() and not link.is_symlink():
            raise AblateError(
                f"share: a trial has written {link}, so {place} cannot be linked there;"
                " remove it"
            )
        with contextlib.suppress(FileExistsError):
            link.symlink_to((root / place).resolve())


def _refuse_link_above(place: Path, root: Path) -> None:
    """Raises AblateError if a folder above a path is a link, which may lead anywhere."""
    for folder in place.relative_to(root).parents:
        if (root / folder).is_symlink():
            raise AblateError(
                f"{root / folder} is a link, so {place.relative_to(root)} would be"
                " written elsewhere; a trial has made it, so remove it"
            )


def make_hidden(folder: Path) -> None:
    """Makes a folder, if there is none, that `git status` does not show."""
    if not folder.exists():
        folder.mkdir(parents=True)
        hide_from_git(folder)


def hide_from_git(folder: Path) -> None:
    """Keeps a folder out of `git status`."""
    with (
        contextlib.suppress(FileExistsError),
        (folder / ".gitignore").open("x") as file,
    ):
        file.write("*\n")


def _put(place: Path, content: bytes, blob: Blob, tree: Tree, path: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if blob.mode == LINK:
        place.symlink_to(_target(os.fsdecode(content), path, tree.repository.root))
        return
    place.write_bytes(content)
    # A script that changes its own files would change those of other trials.
    place.chmod(0o555 if blob.mode == EXECUTABLE else 0o444)


def _target(target: str, path: str, root: Path) -> str:
    """The target of a link; one outside of the repository is the same as before."""
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or not _is_outside(inside):
        return target
    return str(root / inside)


def _is_outside(path: str) -> bool:
    """Whether a path below the root leads out of it."""
    return path == ".." or path.startswith(("../", "/"))


# The folders whose files this process has compared with those of the commit.
_compared: set[Path] = set()


def _restore(tree: Tree, target: Path) -> None:
    """Writes files again that are no longer those of the commit."""
    if target in _compared:
        return
    digits = len(next(iter(tree.files.values())).oid) if tree.files else 40
    changed = []
    for path, blob in tree.files.items():
        if blob.mode in (LINK, SUBMODULE):
            continue
        place = target / path
        is_same = place.is_file() and not place.is_symlink()
        if not is_same or blob_oid(place.read_bytes(), digits) != blob.oid:
            changed.append(path)
    contents = _contents(tree.repository, changed, tree.files, on_disk=tree.on_disk)
    for path, content in zip(changed, contents, strict=True):
        # Another trial may run from this folder: it finds the file at any time.
        _refuse_link_above(target / path, target)
        new = Path(f"{target / path}.ablate-new")
        new.unlink(missing_ok=True)
        _put(new, content, tree.files[path], tree, path)
        new.replace(target / path)
    _compared.add(target)
