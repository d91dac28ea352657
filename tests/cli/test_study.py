"""Notes, tags, archived, renamed and deleted studies."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.results.study import Study
from ablate.store.notes import STUDY, Note, Notes, notes_file
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.conftest import Say
from tests.store.desk import TEXT, Desk, epoch
from tests.store.postgres import postgres


def fails(trial: Trial, number: int) -> Epoch:
    raise RuntimeError("out of memory")


def names(options: Options) -> list[str]:
    with Reader(options.url) as reader:
        return [study.name for study in reader.studies.all()]


@pytest.fixture
def desk(options: Options) -> Desk:
    return Desk(options)


@pytest.fixture
def place(options: Options) -> tuple[str, str]:
    return "--runs", str(options.runs)


def test_notes_and_tags_are_those_of_the_dashboard(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT, most=1)
    code, out, error = say("study", "note", "parts", " noisy machine ", *place)
    assert (code, out, error) == (0, "", "Wrote the note of parts.\n")
    code, out, error = say("study", "tag", "parts", "paper, draft", *place)
    assert (code, out, error) == (0, "", "Wrote the tags of parts.\n")
    notes = Notes(notes_file(desk.options.url, desk.options.runs))
    assert notes.all() == {("parts", STUDY): Note(("paper", "draft"), "noisy machine")}
    assert say("study", "note", "parts", *place)[1] == "noisy machine\n"
    assert say("study", "tag", "parts", *place)[1] == "paper, draft\n"
    say("study", "note", "parts", "", *place)
    say("study", "tag", "parts", "", *place)
    assert notes.all() == {}


def test_lists_leave_out_archived_studies(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT, "old", most=1)
    desk.run(TEXT.replace("[0, 1]", "[0, 2]"), "new", most=1)
    code, _, error = say("study", "archive", "old", *place)
    assert (code, error) == (0, "Lists leave old out; ablate status --all shows it.\n")
    out = say("status", *place)[1]
    assert "new" in out
    assert "old" not in out
    assert "Archived studies: 1; see `ablate status --all`." in out
    assert "old" in say("status", "--all", *place)[1]
    assert "Which part helps?" in say("status", "old", *place)[1], "named, it is shown"
    say("study", "archive", "new", *place)
    assert "Archived studies: 2" in say("status", *place)[1]
    with pytest.raises(
        AblateError, match="all studies are archived; name one: ablate resume"
    ):
        pipeline.resume(None, desk.options)
    say("study", "archive", "old", "--undo", *place)
    assert "old" in say("status", *place)[1]


def test_archiving_keeps_other_tags(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT, most=1)
    say("study", "tag", "parts", "paper", *place)
    say("study", "archive", "parts", *place)
    assert say("study", "tag", "parts", *place)[1] == "paper, archived\n"
    say("study", "archive", "parts", "--undo", *place)
    assert say("study", "tag", "parts", *place)[1] == "paper\n"


def resumed(options: Options, name: str, trained: list[str]) -> None:
    def noted(trial: Trial, number: int) -> Epoch:
        trained.append(trial.hash)
        return epoch(trial, number)

    pipeline.resume(name, options, executor=SimulatedExecutor(noted))


def test_a_renamed_study_keeps_results_generations_and_notes(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT)
    study = desk.run(TEXT.replace("  ffn.kernel: [none, 3]\n", ""))
    assert names(desk.options) == ["parts@1", "parts"]
    before = study.frame()
    say("study", "note", "parts", "mine", *place)
    code, _, error = say("study", "rename", "parts", "shown/first", *place)
    assert code == 0
    assert "Write `name: shown/first` into" in error
    assert names(desk.options) == ["shown/first@1", "shown/first"]
    after = Study("shown/first", desk.options.url)
    assert after.frame().equals(before)
    assert after.declared().name == "shown/first"
    assert say("study", "note", "shown/first", *place)[1] == "mine\n"
    with Reader(desk.options.url) as reader:
        view = reader.studies.get("shown/first").results_view
        assert len(reader.query(f'SELECT * FROM "{view}"')[1]) == len(before)
    trained: list[str] = []
    resumed(desk.options, "shown/first", trained)
    assert trained == []
    assert names(desk.options) == ["shown/first@1", "shown/first"]


def test_the_hint_after_a_second_renaming_names_the_study_of_the_file(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT)
    say("study", "rename", "parts", "second", *place)
    _, _, error = say("study", "rename", "second", "third", *place)
    assert "declares a study 'parts' beside it" in error


def test_an_unfinished_study_is_resumed_under_its_new_name(desk: Desk) -> None:
    desk.run(TEXT, most=3)
    with Writer(desk.options.url) as writer:
        assert writer.rename("parts", "mine") == {"parts": "mine"}
    trained: list[str] = []
    resumed(desk.options, "mine", trained)
    assert names(desk.options) == ["mine"]
    assert len(trained) == 8 * 4 - 3
    # The file with the new name goes on with it.
    study = desk.run(TEXT, "mine")
    assert names(desk.options) == ["mine"]
    assert study.name == "mine"


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("other", "the store has a study 'other' already"),
        ("parts", "the store has a study 'parts' already"),
        ("a b", "'a b' cannot name a study"),
        ("-rf", "cannot name a study"),
        ("a@2", "cannot name a study"),
        ("x" * 191, "cannot name a study"),
        ("", "cannot name a study"),
        ("a\n", "cannot name a study"),
    ],
)
def test_wrong_names(desk: Desk, new: str, message: str) -> None:
    desk.run(TEXT, most=1)
    desk.run(TEXT.replace("[0, 1]", "[0, 2]"), "other", most=1)
    with Writer(desk.options.url) as writer, pytest.raises(AblateError) as caught:
        writer.rename("parts", new)
    assert message in str(caught.value)
    assert names(desk.options) == ["parts", "other"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rename", "parts"), "write the new name: ablate study rename parts NEW"),
        (("note", "nothing", "x"), "unknown study 'nothing'"),
        (("delete", "parts", "x"), "delete takes no text; leave out 'x'"),
        (("tag", "parts", "a", "--undo"), "--undo goes with archive, not with tag"),
        (("tag", "parts", "x" * 50), "is longer than 40 characters"),
        (("remove", "parts"), "'remove' is not one of"),
    ],
)
def test_wrong_words(
    desk: Desk, say: Say, place: tuple[str, str], words: tuple[str, ...], message: str
) -> None:
    desk.run(TEXT, most=1)
    code, _, error = say("study", *words, *place)
    assert code == 2
    assert message in error


def test_a_study_with_results_stays(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT, most=1)
    code, _, error = say("study", "delete", "parts", *place)
    assert code == 2
    assert (
        "parts has 1 trials with an epoch or a result. It stays in the store" in error
    )
    assert "ablate study archive parts" in error
    assert names(desk.options) == ["parts"]


def one_epoch(trial: Trial, number: int) -> Epoch:
    if number > 1:
        raise RuntimeError("out of memory")
    return epoch(trial, number)


def test_a_study_whose_curves_can_be_seen_stays(desk: Desk) -> None:
    """Who has seen the curves of unfinished trials has seen results."""
    desk.run(TEXT.replace("epochs: 1", "epochs: 2"), curve=one_epoch)
    seen = pytest.raises(AblateError, match="trials with an epoch or a result")
    with Writer(desk.options.url) as writer, seen:
        writer.remove("parts")


@pytest.mark.proof
def test_options_that_do_nothing_are_refused(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    desk.run(TEXT, most=1)
    for words in (("status", "parts", "--all"), ("status", "--error-budget", "--all")):
        code, _, error = say(*words, *place)
        assert code == 2
        assert "--all is for the list of studies" in error
    part = "@ablate.loss()\ndef mine(logits, targets): return logits.sum()\n"
    (Path.cwd() / "mine.py").write_text(f"import ablate\n{part}")
    words = ("export", "parts", "--to", "x.csv", "--with", "mine.py")
    code, _, error = say(*words, *place)
    assert code == 2
    assert "--with goes with --log" in error


def test_a_study_without_results_is_deleted(
    desk: Desk, say: Say, place: tuple[str, str]
) -> None:
    other = desk.run(TEXT.replace("[0, 1]", "[0, 2]"), "other")
    before = other.frame()
    desk.run(TEXT.replace("epochs: 1", "epochs: 2"), curve=fails)
    say("study", "note", "parts", "a mistake", *place)
    code, _, error = say("study", "delete", "parts", *place)
    assert code == 0
    assert "Removed parts and 32 trials that no other study has." in error
    assert names(desk.options) == ["other"]
    assert Study("other", desk.options.url).frame().equals(before)
    assert Notes(notes_file(desk.options.url, desk.options.runs)).all() == {}
    with Reader(desk.options.url) as reader:
        left = reader.query("SELECT COUNT(*) FROM trials")[1][0][0]
        runs = reader.query("SELECT COUNT(*) FROM provenance")[1][0][0]
    assert (left, runs) == (len(before), 1)
    # The name is free, and the trials are as new.
    study = desk.run(TEXT, most=1)
    assert study.name == "parts"


def test_a_study_that_a_later_one_counts_stays(desk: Desk) -> None:
    desk.run(TEXT, "first", curve=fails)
    desk.run(TEXT.replace("seeds: 4", "seeds: 5"), "second", curve=fails)
    with Reader(desk.options.url) as reader:
        counts = reader.studies.relatives("second") == ["first"]
    assert counts
    with Writer(desk.options.url) as writer:
        with pytest.raises(AblateError, match="second compares rows on the same seeds"):
            writer.remove("first")
        writer.remove("second")
        writer.remove("first")
    assert names(desk.options) == []


@pytest.mark.proof
def test_a_server_knows_who_trains(options: Options, tmp_path: Path) -> None:
    with postgres() as url:
        on_server = Options(runs=options.runs, store=url)
        desk = Desk(on_server)
        desk.run(TEXT, most=1)
        desk.run(TEXT.replace("epochs: 1", "epochs: 2"), "bad", curve=fails)
        declared = space.load(TEXT, "parts.yaml")
        assert declared.name == "parts"
        with Writer(url) as writer:
            with writer._engine.begin() as connection:
                connection.execute(
                    text(
                        "INSERT INTO drivers SELECT name, id, 'x',"
                        " extract(epoch FROM clock_timestamp()) + 60 FROM studies"
                    )
                )
            for change in (
                lambda: writer.rename("parts", "mine"),
                lambda: writer.remove("bad"),
            ):
                with pytest.raises(AblateError, match="a driver is training"):
                    change()
            with writer._engine.begin() as connection:
                connection.execute(text("DELETE FROM drivers"))
            writer.rename("parts", "mine")
            writer.remove("bad")
        assert names(on_server) == ["mine"]
        assert len(Study("mine", url).frame()) == 32
