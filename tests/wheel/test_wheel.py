"""What is built for others holds everything, and works outside a checkout.

`make wheel` installs it and does the main job.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Folders of the checkout, and what they are called in the wheel.
SHIPPED = {
    "ablate/": "ablate/",
    "dashboards/": "ablate_dashboards/",
    "search_spaces/": "ablate_examples/",
}


def git(*words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


@dataclass(frozen=True)
class Built:
    """The sdist, the wheel of the checkout, the wheel of the sdist."""

    sdist: Path
    wheel: Path
    second: Path


def build(source: Path, target: str, out: Path) -> Path:
    words = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        target,
        "--directory",
        str(out),
    ]
    subprocess.run(words, cwd=source, check=True, capture_output=True)
    return next(out.iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds from the tracked files alone, as a clean clone has them."""
    folder = tmp_path_factory.mktemp("built")
    for name in git("ls-files", "-z"):
        if (ROOT / name).exists():
            (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "clone" / name)
    sdist = build(folder / "clone", "sdist", folder / "sdist")
    wheel = build(folder / "clone", "wheel", folder / "wheel")
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    return Built(
        sdist,
        wheel,
        build(next((folder / "unpacked").iterdir()), "wheel", folder / "second"),
    )


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel in it, as in site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built.wheel) as packed:
        packed.extractall(folder)
    return folder


def test_no_tracked_file_is_ignored() -> None:
    assert git("ls-files", "-z", "--cached", "--ignored", "--exclude-standard") == []


@pytest.mark.proof
def test_the_wheel_holds_each_shipped_file_and_no_other(built: Built) -> None:
    tracked = [name for name in git("ls-files", "-z") if (ROOT / name).exists()]
    expected = {
        shipped + name.removeprefix(own)
        for own, shipped in SHIPPED.items()
        for name in tracked
        if name.startswith(own)
    }
    with zipfile.ZipFile(built.wheel) as packed:
        held = {name for name in packed.namelist() if ".dist-info/" not in name}
        for name in held & {name for name in tracked if name.startswith("ablate/")}:
            assert packed.read(name) == (ROOT / name).read_bytes()
    assert held == expected


def test_the_sdist_holds_every_tracked_file(built: Built) -> None:
    with tarfile.open(built.sdist) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    assert held - {"PKG-INFO"} == {
        name for name in git("ls-files", "-z") if (ROOT / name).exists()
    }


def test_the_sdist_builds_the_same_wheel(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as first, zipfile.ZipFile(built.second) as second:
        assert {name: first.read(name) for name in first.namelist()} == {
            name: second.read(name) for name in second.namelist()
        }


@pytest.mark.proof
def test_the_distribution_has_a_name_of_its_own(built: Built) -> None:
    assert built.wheel.name.startswith("ablate_harness-")
    with zipfile.ZipFile(built.wheel) as packed:
        metadata = next(
            name for name in packed.namelist() if name.endswith(".dist-info/METADATA")
        )
        assert (
            message_from_string(packed.read(metadata).decode())["Name"]
            == "ablate-harness"
        )


def ablate(installed: Path, folder: Path, *words: str) -> str:
    """Runs the installed `ablate` in a folder; gives what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "ablate", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.proof
def test_a_wheel_finds_its_version_its_examples_and_its_pages(
    installed: Path, tmp_path: Path
) -> None:
    assert ablate(installed, tmp_path, "--version").startswith("ablate 0.")
    ablate(installed, tmp_path, "init")
    ablate(installed, tmp_path, "init", "--example", "augvit/table3-small", "small")
    assert (tmp_path / "space.yaml").read_bytes() == (
        ROOT / "ablate" / "cli" / "space.yaml"
    ).read_bytes()
    assert "augvit/table3" in (tmp_path / "small.yaml").read_text()
    assert "15 to train" in ablate(installed, tmp_path, "plan", "space.yaml")
    words = "import ablate.cli.serve as s, pathlib; print(s.script())"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = subprocess.run(
        [sys.executable, "-c", words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()) == installed / "ablate_dashboards" / "app.py"


def test_an_environment_in_the_repository_of_another_project_has_no_commit(
    installed: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "other"
    shutil.copytree(installed, repository / "site")
    for words in (
        ("init", "--quiet"),
        (
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            "theirs",
        ),
    ):
        subprocess.run(["git", *words], cwd=repository, check=True)
    words = "from ablate.machine import provenance; print(repr(provenance.collect().commit))"
    environment = {**os.environ, "PYTHONPATH": str(repository / "site")}
    found = subprocess.run(
        [sys.executable, "-c", words],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "''"
