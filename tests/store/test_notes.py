"""Tags and notes are in a file of their own, and results stay as they are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ablate.errors import AblateError, StoreError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.store.notes import Note, Notes, notes_file, tags_of
from tests.conftest import TINY, RunText


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "ablate.notes.db")


def test_the_file_is_beside_the_store() -> None:
    runs = Path("runs")
    assert notes_file("runs/ablate.db", runs) == Path("runs/ablate.notes.db")
    assert notes_file("sqlite:////a/b.db", runs) == Path("/a/b.notes.db")
    server = notes_file("postgresql+psycopg://me:secret@host/db", runs)
    assert server.parent == runs
    assert server == notes_file("postgresql+psycopg://me:other@host/db", runs)
    assert server != notes_file("postgresql+psycopg://me@host/another", runs)


def test_a_note_is_read_replaced_and_removed(notes: Notes, tmp_path: Path) -> None:
    assert notes.all() == {}
    assert not list(tmp_path.iterdir()), "reading makes no file"
    first = Note(("paper", "table 2"), "the run of Monday")
    on_trial = Note(text="it looks odd")
    notes.put("a/b", "", first)
    notes.put("a/b", "0123", on_trial)
    notes.put("other", "", Note(("paper",)))
    assert notes.all()["a/b", ""] == first
    assert notes.all()["a/b", "0123"] == on_trial
    notes.put("a/b", "", Note(("done",)))
    assert notes.all()["a/b", ""] == Note(("done",))
    notes.put("a/b", "", Note())
    assert set(notes.all()) == {("a/b", "0123"), ("other", "")}


def test_texts_are_kept_to_the_letter(notes: Notes) -> None:
    text = "'); DROP TABLE notes; --\n<script>\x1b[31m 🔥"
    notes.put(text, "", Note((text,), text))
    assert notes.all() == {(text, ""): Note((text,), text)}


def test_tags_of_a_text() -> None:
    assert tags_of(" paper , table 2,, paper ") == ("paper", "table 2")
    assert tags_of("") == ()
    with pytest.raises(AblateError, match="21 tags; at most 20 are allowed"):
        tags_of(",".join(map(str, range(21))))
    with pytest.raises(AblateError, match="is longer than 40 characters"):
        tags_of("x" * 41)


def test_a_long_note_is_refused_and_the_old_one_stays(notes: Notes) -> None:
    notes.put("s", "", Note(text="old"))
    with pytest.raises(
        AblateError, match="10,001 characters; at most 10,000 are allowed"
    ):
        notes.put("s", "", Note(text="x" * 10_001))
    assert notes.all() == {("s", ""): Note(text="old")}


def test_a_foreign_file_is_named_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "ablate.notes.db"
    file.write_text("a diary")
    for act in (
        Notes(file).all,
        lambda: Notes(file).put("s", "", Note(text="x")),
    ):
        with pytest.raises(StoreError, match=r"ablate\.notes\.db cannot be read"):
            act()
    assert file.read_text() == "a diary"


def test_an_empty_file_has_no_notes(tmp_path: Path) -> None:
    """Another process may have just created it."""
    file = tmp_path / "ablate.notes.db"
    file.touch()
    assert Notes(file).all() == {}
    Notes(file).put("s", "", Note(text="x"))
    assert Notes(file).all() == {("s", ""): Note(text="x")}


def test_the_first_note_makes_the_folder(tmp_path: Path) -> None:
    """A store on a server needs no runs folder on this machine."""
    notes = Notes(tmp_path / "runs" / "notes-1.db")
    notes.put("s", "", Note(text="x"))
    assert notes.all() == {("s", ""): Note(text="x")}


def test_two_people_write_at_once(notes: Notes) -> None:
    def write(number: int) -> None:
        for step in range(10):
            notes.put(f"study {number}", "", Note(text=str(step)))

    people = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    assert notes.all() == {(f"study {n}", ""): Note(text="9") for n in range(4)}


def test_results_do_not_change(run_text: RunText, options: Options) -> None:
    run_text(TINY, SimulatedExecutor())
    before = Path(options.url).read_bytes()
    Notes(notes_file(options.url, options.runs)).put("tiny", "", Note(("paper",)))
    assert Path(options.url).read_bytes() == before
