"""What a level of the factor `commit` stands for, and what identifies it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ablate.errors import AblateError
from ablate.own import commits
from ablate.own.commits import Tree, tree_of, written
from tests.commits.repository import (
    MODEL,
    branch,
    commit,
    git,
    make_repository,
    write,
)


def tree(repository: Path, name: str, **options: tuple[str, ...]) -> Tree:
    return tree_of(str(repository), name, **options)


def test_a_branch_a_tag_and_a_commit_are_one_level(repository: Path) -> None:
    git(repository, "tag", "v1", "main")
    git(repository, "tag", "--annotate", "v2", "main", "--message", "v2")
    oid = git(repository, "rev-parse", "main")
    names = ("main", "v1", "v2", oid, oid[:8], "refs/heads/main", "HEAD", "better~1")
    assert len({tree(repository, name).identity for name in names}) == 1
    assert tree(repository, "v2").commit == oid


def test_what_cannot_change_a_result_does_not_count(repository: Path) -> None:
    assert tree(repository, "comment").identity == tree(repository, "main").identity
    assert tree(repository, "better").identity != tree(repository, "main").identity


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.json", "{}"),
        ("train.py", "print(1)\n"),
        ("notes.md", "text"),
        ("data.bin", "\0"),
    ],
)
def test_every_other_file_counts(repository: Path, name: str, text: str) -> None:
    branch(repository, "other", {name: text})
    assert tree(repository, "other").identity != tree(repository, "main").identity


def test_an_executable_file_counts(repository: Path) -> None:
    write(repository, {"run.sh": "exit"})
    commit(repository, "script")
    before = tree(repository, "main").identity
    (repository / "run.sh").chmod(0o755)
    commit(repository, "executable")
    assert tree(repository, "main").identity != before


@pytest.mark.parametrize(
    "pattern", ["*.md", "notes.md", "docs", "docs/", "docs/*", "*/notes.md"]
)
def test_ignored_files_do_not_count(repository: Path, pattern: str) -> None:
    name = "docs/notes.md" if "/" in pattern or pattern == "docs" else "notes.md"
    branch(repository, "notes", {name: "text"})
    ignore = (pattern,)
    same = tree(repository, "main", ignore=ignore)
    other = tree(repository, "notes", ignore=ignore)
    assert other.identity == same.identity
    assert name in other.files


def test_a_branch_that_moves_is_another_level(repository: Path) -> None:
    before = tree(repository, "main").identity
    write(repository, {"model.py": MODEL.replace("1.0", "3.0")})
    commit(repository, "moved")
    assert tree(repository, "main").identity != before
    assert tree(repository, "main~1").identity == before


def test_the_worktree_is_what_git_tracks_as_it_is_now(repository: Path) -> None:
    assert tree(repository, "worktree").identity == tree(repository, "main").identity
    write(repository, {"model.py": MODEL.replace("1.0", "2.0"), "new.py": "x = 1\n"})
    changed = tree(repository, "worktree")
    assert changed.identity == tree(repository, "better").identity
    assert changed.untracked == ("new.py",)
    git(repository, "add", "new.py")
    added = tree(repository, "worktree")
    assert added.identity != changed.identity
    assert "new.py" in added.files
    (repository / "model.py").unlink()
    assert "model.py" not in tree(repository, "worktree").files


def patch_of(repository: Path, name: str = "my.patch", new: str = "2.0") -> Path:
    """A patch with one change, which the checkout does not have."""
    write(repository, {"model.py": MODEL.replace("1.0", new)})
    patch = repository / name
    patch.write_bytes(git(repository, "diff").encode() + b"\n")
    git(repository, "checkout", "--quiet", "model.py")
    return patch


def test_a_patch_changes_the_commit_that_is_checked_out(repository: Path) -> None:
    patch_of(repository)
    patched = tree(repository, "my.patch")
    assert patched.identity == tree(repository, "better").identity
    assert patched.commit == git(repository, "rev-parse", "HEAD")


def test_a_patch_may_add_files_and_hold_bytes(repository: Path, tmp_path: Path) -> None:
    (repository / "weights.bin").write_bytes(bytes(range(256)))
    git(repository, "add", "weights.bin")
    text = git(repository, "diff", "--cached", "--binary")
    git(repository, "rm", "--quiet", "--force", "weights.bin")
    (repository / "data.patch").write_text(f"{text}\n\n")
    patched = tree(repository, "data.patch")
    checkout = written(patched.identity, tmp_path / "commits", ())
    assert Path(checkout.folder, "weights.bin").read_bytes() == bytes(range(256))


def test_a_patch_that_does_not_apply_is_refused(repository: Path) -> None:
    patch_of(repository)
    write(repository, {"model.py": "other = 1\n"})
    commit(repository, "other")
    with pytest.raises(AblateError, match="does not apply to HEAD.*git diff HEAD"):
        tree(repository, "my.patch")


def test_a_patch_cannot_write_outside(repository: Path) -> None:
    text = (
        "--- /dev/null\n+++ b/../evil.py\n@@ -0,0 +1 @@\n+x = 1\ndiff --git a/x b/x\n"
    )
    (repository / "evil.patch").write_text(text)
    with pytest.raises(AblateError, match="does not apply"):
        tree(repository, "evil.patch")


def test_the_files_of_a_tree_are_those_of_git(repository: Path, tmp_path: Path) -> None:
    write(repository, {"sub/data.txt": "a\r\nb\n", "run.sh": "exit 0\n"})
    (repository / "run.sh").chmod(0o755)
    (repository / "link.py").symlink_to("model.py")
    (repository / "far").symlink_to("/dev/null")
    (repository / "up").symlink_to("../outside")
    commit(repository, "files")
    made = tree(repository, "main")
    folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
    assert (folder / "sub/data.txt").read_bytes() == b"a\r\nb\n"
    assert os.access(folder / "run.sh", os.X_OK)
    assert not os.access(folder / "sub/data.txt", os.X_OK)
    assert os.readlink(folder / "link.py") == "model.py"
    assert os.readlink(folder / "far") == "/dev/null"
    # It leads where it leads in the checkout.
    assert os.readlink(folder / "up") == str(repository / "../outside")
    assert not (folder / ".git").exists()


def test_files_that_a_trial_changed_are_restored(
    repository: Path, tmp_path: Path
) -> None:
    made = tree(repository, "main")
    folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
    (folder / "model.py").chmod(0o644)
    (folder / "model.py").write_text("def gain():\n    return 9.0\n")
    (folder / "train.py").unlink()
    (folder / "own.txt").write_text("kept")
    commits.forget()
    made = tree(repository, "main")
    written(made.identity, tmp_path / "commits", ())
    assert (folder / "model.py").read_text() == MODEL
    assert (folder / "train.py").is_file()
    assert (folder / "own.txt").is_file()


def test_a_tree_of_the_worktree_is_what_identifies_it(
    repository: Path, tmp_path: Path
) -> None:
    write(repository, {"model.py": MODEL.replace("1.0", "2.0")})
    made = tree(repository, "worktree")
    write(repository, {"model.py": MODEL.replace("1.0", "3.0")})
    with pytest.raises(AblateError, match="changed while it was read"):
        written(made.identity, tmp_path / "commits", ())
    assert not (tmp_path / "commits" / made.identity).exists()


def test_shared_paths_are_links_to_the_checkout(
    repository: Path, tmp_path: Path
) -> None:
    write(repository, {"data/images.txt": "images", ".gitignore": "data\n"})
    commit(repository, "data are ignored")
    # It was tried without the data first.
    written(tree(repository, "main").identity, tmp_path / "commits", ())
    made = tree(repository, "main", share=("data",))
    folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
    assert (folder / "data/images.txt").read_text() == "images"
    assert (folder / "data").is_symlink()
    (folder / "data").unlink()
    (folder / "data").mkdir()
    with pytest.raises(AblateError, match="a trial has written .*data.*remove it"):
        written(made.identity, tmp_path / "commits", ())


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ("nothing", "share: there is no .*nothing"),
        ("../outside", "share: ../outside is not below"),
        ("/etc", "share: /etc is not below"),
        ("model.py", "share: model.py is in main too"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    repository: Path, share: str, message: str
) -> None:
    with pytest.raises(AblateError, match=message):
        tree(repository, "main", share=(share,))


@pytest.mark.parametrize("shared", ["data/x", "data/deep/x"])
def test_nothing_is_linked_through_a_link_of_a_commit(
    repository: Path, tmp_path: Path, shared: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    git(repository, "checkout", "--quiet", "-b", "linked")
    (repository / "data").symlink_to(outside)
    commit(repository, "a link")
    git(repository, "checkout", "--quiet", "main")
    write(repository, {f"{shared}/images.txt": "images", ".gitignore": "data\n"})
    with pytest.raises(AblateError, match="linked has a link data, so"):
        tree(repository, "linked", share=(shared,))
    # A trial may have made a link, too.
    made = tree(repository, "main", share=(shared,))
    folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
    shutil.rmtree(folder / "data")
    (folder / "data").symlink_to(outside)
    with pytest.raises(AblateError, match="data is a link, so .* a trial has made it"):
        written(made.identity, tmp_path / "commits", ())
    assert list(outside.iterdir()) == []


def test_a_link_in_the_place_of_the_folder_of_a_command_is_refused(
    repository: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    git(repository, "checkout", "--quiet", "-b", "linked")
    (repository / "sub").symlink_to(outside)
    commit(repository, "a link")
    git(repository, "checkout", "--quiet", "main")
    write(repository, {"sub/deep/mine.py": ""})
    with pytest.raises(AblateError, match="linked has a link sub in place of"):
        tree_of(str(repository / "sub/deep"), "linked")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no branch, tag or commit nothing"),
        ("mian", "did you mean 'main'"),
        ("my.patch", "there is no patch file my.patch"),
        ("", "is no name of a commit"),
        (" ", "is no name of a commit"),
        ("a\nb", "is no name of a commit"),
        ("a\0b", "is no name of a commit"),
        ("--help", "no branch, tag or commit --help"),
        ("--git-dir=/tmp", "no branch, tag or commit"),
        ("main:train.py", "no branch, tag or commit"),
        ("x" * 10_000, "no branch, tag or commit"),
    ],
)
def test_an_unknown_name_is_refused(repository: Path, name: str, message: str) -> None:
    with pytest.raises(AblateError, match=message) as caught:
        tree(repository, name)
    assert len(str(caught.value)) < 1_000


def test_a_name_that_could_be_two_things_is_refused(repository: Path) -> None:
    git(repository, "branch", "worktree")
    with pytest.raises(AblateError, match="refs/heads/worktree"):
        tree(repository, "worktree")
    assert tree(repository, "refs/heads/worktree").commit
    patch_of(repository)
    git(repository, "branch", "my.patch")
    with pytest.raises(AblateError, match="refs/heads/my.patch"):
        tree(repository, "my.patch")


def test_a_tag_that_equals_a_branch_is_refused(repository: Path) -> None:
    git(repository, "tag", "better", "main")
    with pytest.raises(AblateError, match="refs/heads/better or refs/tags/better"):
        tree(repository, "better")
    git(repository, "tag", "main", "main")
    assert tree(repository, "main").name == "main"
    assert tree(repository, "HEAD").name == "HEAD"


def test_a_shallow_clone_is_named(repository: Path, tmp_path: Path) -> None:
    commit(repository, "second")
    clone = tmp_path / "shallow"
    words = ("clone", "--quiet", "--depth", "1", f"file://{repository}", str(clone))
    git(tmp_path, *words)
    with pytest.raises(AblateError, match="git fetch --unshallow"):
        tree(clone, "HEAD~1")


def test_a_branch_of_a_remote_is_suggested(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    with pytest.raises(AblateError, match="did you mean origin/better"):
        tree(clone, "better")


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AblateError, match="is in no git repository"):
        tree(tmp_path, "main")


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    with pytest.raises(AblateError, match="has no commit yet"):
        tree(tmp_path, "main")


def test_a_machine_without_git_is_told(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AblateError, match="git, which is not installed"):
        tree(repository, "main")


def test_a_missing_object_is_named(repository: Path) -> None:
    oid = git(repository, "rev-parse", "main:model.py")
    (repository / ".git/objects" / oid[:2] / oid[2:]).unlink()
    with pytest.raises(AblateError, match=f"no object {oid}"):
        tree(repository, "main")


def test_a_repository_with_long_names_of_objects_works(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    git(folder, "init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    write(folder, {"model.py": MODEL})
    commit(folder, "first")
    made = tree(folder, "main")
    place = Path(written(made.identity, tmp_path / "commits", ()).folder)
    assert (place / "model.py").read_text() == MODEL
    (place / "model.py").unlink()
    commits.forget()
    written(tree(folder, "main").identity, tmp_path / "commits", ())
    assert (place / "model.py").read_text() == MODEL


@pytest.mark.parametrize("name", ["a b", "ü ñ", "quote'd", 'double"d', "a:b"])
def test_any_folder_name_works(tmp_path: Path, name: str) -> None:
    folder = make_repository(tmp_path / name)
    patch_of(folder)
    assert tree(folder, "my.patch").identity == tree(folder, "better").identity
    made = tree(folder, "main")
    made_at = Path(written(made.identity, tmp_path / "commits", ()).folder)
    assert (made_at / "train.py").is_file()


def test_files_with_odd_names_are_written(repository: Path, tmp_path: Path) -> None:
    names = ["a b.txt", "tab\there", "new\nline", "ü.txt", "-rf", 'q"uote']
    write(repository, dict.fromkeys(names, "text"))
    Path(os.fsdecode(os.fsencode(str(repository)) + b"/\xff.txt")).write_text("text")
    commit(repository, "odd")
    made = tree(repository, "main")
    folder = Path(written(made.identity, tmp_path / "commits", ()).folder)
    assert {*names} <= {*os.listdir(folder)}
    assert b"\xff.txt" in os.listdir(os.fsencode(folder))


def test_two_writers_of_a_tree_do_not_disturb_each_other(
    repository: Path, tmp_path: Path
) -> None:
    made = tree(repository, "main")
    first = written(made.identity, tmp_path / "commits", ())
    commits.forget()
    made = tree(repository, "main")
    shutil.rmtree(first.folder)
    second = written(made.identity, tmp_path / "commits", ())
    assert first == second
    assert [
        path.name for path in (tmp_path / "commits").iterdir() if path.is_dir()
    ] == [made.identity]


def test_a_folder_below_the_root_is_where_the_command_runs(
    repository: Path, tmp_path: Path
) -> None:
    write(repository, {"jobs/train.py": "x = 1\n", "src/package/a.py": "x = 1\n"})
    commit(repository, "folders")
    made = tree(repository / "jobs", "main")
    search = [str(repository / "lib"), "", str(tmp_path), str(repository / "src")]
    checkout = written(made.identity, tmp_path / "commits", search)
    root = tmp_path / "commits" / made.identity
    assert checkout.folder == str(root / "jobs")
    # What lies in the checkout is taken from the commit; the rest stays as it is.
    assert checkout.path == (str(root / "lib"), str(root / "src"), str(root))


def test_a_hook_of_git_can_call_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git sets variables for its hooks that lead to its own repository."""
    right = tree(repository, "main").identity
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    monkeypatch.setenv("GIT_WORK_TREE", "/nowhere")
    commits.forget()
    assert tree(repository, "main").identity == right
