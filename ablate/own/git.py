"""Reads a git repository without running anything of it, and without writing to it.

Hooks, filters, attributes, submodules and remotes are not used: commits are read as
objects (`git ls-tree`, `git cat-file`), and a patch is applied to an index of its own,
whose new objects are kept outside the repository.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.errors import AblateError, shortened

# What a hook of git sets, and what would lead to another repository.
OF_ANOTHER_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_EXTERNAL_DIFF",
)
# A repository that git can read answers at once; one on a network drive takes longer.
SECONDS = 120
# The modes of a file of a commit.
EXECUTABLE = "100755"
LINK = "120000"
SUBMODULE = "160000"


@dataclass(frozen=True)
class Blob:
    """A file of a commit: its mode, and the name of its content."""

    mode: str
    oid: str


@dataclass(frozen=True)
class Repository:
    """A repository with a checkout.

    Attributes:
        root: the folder of the checkout.
        objects: a folder with objects that the repository does not have; empty: none.
    """

    root: Path
    objects: str = ""

    def commit(self, name: str) -> str | None:
        """Returns the commit that a name stands for; None if there is none."""
        done = self._git(
            "rev-parse", "--verify", "--quiet", *_safe(f"{name}^{{commit}}")
        )
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def has_branch(self, name: str) -> bool:
        return self.commit(f"refs/heads/{name}") is not None

    def is_shallow(self) -> bool:
        """Whether older commits were left out when it was cloned."""
        done = self._git("rev-parse", "--is-shallow-repository")
        return done.stdout.strip() == b"true"

    def names(self) -> list[str]:
        """Returns the names of all branches and tags, for messages."""
        done = self._git(
            "for-each-ref",
            "--format=%(refname:short)",
            "refs/heads",
            "refs/tags",
            "refs/remotes",
        )
        return done.stdout.decode(errors="replace").split()

    def files(self, treeish: str) -> dict[str, Blob]:
        """Returns the files of a commit or tree by their path.

        Raises:
            AblateError: git cannot read it.
        """
        done = self._checked("ls-tree", "-r", "-z", "--full-tree", treeish)
        files = {}
        for line in done.split(b"\0"):
            if line:
                head, _, path = line.partition(b"\t")
                mode, _, oid = head.decode().split()
                files[os.fsdecode(path)] = Blob(mode, oid)
        return files

    def contents(self, oids: Iterable[str]) -> Iterator[bytes]:
        """Returns the content of each object, exactly as it was committed.

        Raises:
            AblateError: an object is missing.
        """
        process = subprocess.Popen(
            self._words("cat-file", "--batch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment(),
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            for oid in oids:
                process.stdin.write(f"{oid}\n".encode())
                process.stdin.flush()
                head = process.stdout.readline().split()
                if len(head) != 3:
                    raise AblateError(
                        f"git: {self.root} has no object {oid}; a shallow or partial"
                        " clone lacks objects: git fetch --unshallow"
                    )
                content = process.stdout.read(int(head[2]))
                process.stdout.read(1)
                yield content

    def tracked(self) -> list[str]:
        """Returns the paths of the files of the index."""
        listed = self._checked("ls-files", "-z", "--cached", "--deduplicate")
        return [os.fsdecode(path) for path in listed.split(b"\0") if path]

    def untracked(self) -> list[str]:
        """Returns the paths of files that git neither tracks nor ignores."""
        listed = self._checked("ls-files", "-z", "--others", "--exclude-standard")
        return [os.fsdecode(path) for path in listed.split(b"\0") if path]

    def patched(self, patch: Path, folder: Path) -> tuple[Repository, str]:
        """Returns HEAD with a patch as a tree, and where its objects are.

        Args:
            folder: gets the index and the new objects.

        Raises:
            AblateError: the patch does not apply.
        """
        objects = folder / "objects"
        objects.mkdir()
        patched = Repository(self.root, str(objects))
        index = {"GIT_INDEX_FILE": str(folder / "index")}
        patched._checked("read-tree", "HEAD", more=index)
        # It is read here, so that its name is no argument.
        done = patched._git(
            "apply",
            "--cached",
            "--whitespace=nowarn",
            "-",
            more=index,
            stdin=patch.read_bytes(),
        )
        if done.returncode:
            raise AblateError(
                f"the patch {patch} does not apply to HEAD: {_first_line(done.stderr)};"
                " make it with: git diff HEAD"
            )
        tree = patched._checked("write-tree", more=index).decode().strip()
        return patched, tree

    def _words(self, *words: str) -> list[str]:
        # Both would be programs that the repository names.
        off = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
        return ["git", "-C", str(self.root), *off, *words]

    def _environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        environment = {
            name: text
            for name, text in os.environ.items()
            if name not in OF_ANOTHER_REPOSITORY
        }
        environment |= {
            # Reading must not write, ask for a password, or fetch.
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
        }
        if self.objects:
            environment["GIT_OBJECT_DIRECTORY"] = self.objects
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = self._own_objects()
        return environment | dict(more or {})

    def _own_objects(self) -> str:
        own = Repository(self.root)._checked("rev-parse", "--git-path", "objects")
        path = str((self.root / os.fsdecode(own.rstrip(b"\n"))).resolve())
        # A colon would part two folders.
        escaped = path.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def _git(
        self,
        *words: str,
        more: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        return _run(self._words(*words), self._environment(more), stdin)

    def _checked(self, *words: str, more: Mapping[str, str] | None = None) -> bytes:
        done = self._git(*words, more=more)
        if done.returncode:
            raise AblateError(f"git {words[0]}: {_first_line(done.stderr)}")
        return done.stdout


def repository_of(folder: Path) -> Repository:
    """Returns the repository whose checkout contains a folder.

    Raises:
        AblateError: there is none, or git refuses to read it.
    """
    start = Repository(folder)
    done = start._git("rev-parse", "--show-toplevel")
    if done.returncode:
        raise AblateError(
            f"{folder} is in no git repository: {_first_line(done.stderr)}"
        )
    return Repository(Path(os.fsdecode(done.stdout.rstrip(b"\n"))))


def blob_oid(content: bytes, digits: int) -> str:
    """Returns the name that git gives a content: SHA-1, or SHA-256 with 64 digits."""
    kind = hashlib.sha256 if digits == 64 else hashlib.sha1
    return kind(b"blob %d\0" % len(content) + content).hexdigest()


def _safe(name: str) -> tuple[str, str]:
    """A name as an argument that is no option, even if it begins with a dash."""
    return "--end-of-options", name


def _run(
    words: list[str], environment: Mapping[str, str], stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            words,
            env=environment,
            input=stdin,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise AblateError("commits are read with git, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise AblateError(
            f"git {' '.join(words[7:9])} did not end within {SECONDS} s"
        ) from None


def _first_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return (
        shortened(lines[0].removeprefix("fatal: ").removeprefix("error: "))
        if lines
        else "it failed"
    )
