"""The documentation builds without warnings, and its commands and snippets run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import make_recording, make_tutorials

DOCS = Path(make_tutorials.__file__).parent
PAGES = sorted(DOCS.glob("**/*.md"))


@pytest.mark.proof
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"),
            *("-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path / "site")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "reference" / "space.html").exists()
    found = (tmp_path / "site" / "search.html").read_text()
    assert "searchtools.js" in found, "no page takes the place of the search"


@pytest.mark.ray
@pytest.mark.parametrize("name", make_tutorials.PAGES)
def test_the_commands_of_a_tutorial_run(name: str, tmp_path: Path) -> None:
    page = (DOCS / name).read_text()
    # `make tutorials` trains all epochs. The first page shows what its results look like.
    epochs = None if name == make_tutorials.PAGES[0] else 6
    ran = make_tutorials.run(page, tmp_path, epochs)
    shown, printed = transcript(page), transcript(ran)
    assert list(shown) == list(printed)
    compared = 0
    for command, text in shown.items():
        # Verdicts and findings differ between processors as numbers do. A run of several
        # sizes prints verdicts.
        is_ladder = command.startswith("ablate run larger")
        if not is_ladder and command.startswith(
            ("ablate init", "ablate plan", "ablate run")
        ):
            assert masked(printed[command]) == masked(text), "run `make tutorials`"
            compared += 1
    assert compared >= 1


def transcript(page: str) -> dict[str, str]:
    """What a page says that its commands print, by the last command of a block."""
    found: dict[str, str] = {}
    command = ""
    for block in make_tutorials.blocks(page):
        if block.kind == "console":
            command = block.text.splitlines()[-1].removeprefix("$ ")
        if block.kind == "text":
            found[command] = block.text
    return found


BUSY = " on an idle machine (this one is busy: its load is # on # cores)"


def test_an_estimate_on_a_busy_machine_is_the_same() -> None:
    busy = (
        "30 to train, about 83 s on an idle machine (this one\nis busy: its load is 6 on"
        " 2 cores)."
    )
    assert masked(busy) == masked("30 to train, about 2 min.")


def masked(text: str) -> list[str]:
    """The words of a text in the order of the alphabet, without numbers and stars.

    Wider numbers break a heading over two lines.
    """
    without_rules = re.sub(r"─+|[*+-]", " ", text)
    # `1 min` and `55 s` are the same estimate.
    numbers = " ".join(re.sub(r"\d[\d.]*", "#", without_rules).split())
    # A busy machine says so beside a long estimate.
    numbers = numbers.replace(BUSY, "")
    return sorted(re.sub(r"about # (s|min)\b", "about #", numbers).split())


def test_a_tutorial_shows_an_output_for_its_commands() -> None:
    for name in make_tutorials.PAGES:
        kinds = [
            block.kind
            for block in make_tutorials.blocks((DOCS / name).read_text())
            if block.kind in ("console", "text")
        ]
        assert kinds
        assert kinds == ["console", "text"] * (len(kinds) // 2)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_can_be_reached(page: Path) -> None:
    index = (DOCS / "index.md").read_text()
    name = page.relative_to(DOCS).with_suffix("").as_posix()
    assert name == "index" or f"\n{name}\n" in index


def test_the_recording_shows_what_the_tutorial_shows() -> None:
    """The tutorial's own output is compared with the commands above."""
    page = (DOCS / make_recording.PAGE).read_text()
    stored = (DOCS / make_recording.PICTURE).read_text()
    assert make_recording.picture(page) == stored, "run: python -m docs.make_recording"
    commands = {screen.command for screen in make_recording.screens(page)}
    assert {"ablate plan first.yaml", "ablate effects first"} <= commands
    ElementTree.fromstring(stored)
    assert "http" not in stored.replace("http://www.w3.org/2000/svg", "")
