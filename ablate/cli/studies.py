"""What people change in stored studies: `ablate study ACTION STUDY`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    RunsOption,
    StoreOption,
    StudyArgument,
    url_of,
)
from ablate.cli.output import say, tell

if TYPE_CHECKING:
    from ablate.store.notes import Note, Notes
    from ablate.store.studies import StudyStatus


class Action(StrEnum):
    """What is done with a study."""

    note = "note"
    tag = "tag"
    archive = "archive"
    rename = "rename"
    delete = "delete"


def study(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="ACTION",
            help=(
                "note: show or write its note. tag: show or write its tags, separated by"
                " commas. archive: leave it out of lists. rename: give it another name."
                " delete: remove it, if it has no results."
            ),
        ),
    ],
    name: StudyArgument,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="The note, the tags or the new name; an empty text removes note or tags.",
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="With archive: list the study again.")
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Note, tag, archive, rename or delete a study.

    Notes and tags are in a file beside the store and change no result. The dashboard
    shows and filters by them.
    """
    from ablate.store.notes import STUDY, Note, Notes, notes_file
    from ablate.store.reader import Reader

    _check_words(action, name, value, undo=undo)
    url = url_of(store, runs)
    with Reader(url) as reader:
        stored = reader.studies.get(name)
    notes = Notes(notes_file(url, runs))
    if action == Action.rename and value is not None:
        _rename(url, notes, name, value)
        tell(_after_renaming(stored, value))
    elif action == Action.delete:
        _delete(url, notes, name)
    else:
        before = notes.all().get((name, STUDY), Note())
        _annotate(notes, name, action, value, before, undo=undo)


def _check_words(action: Action, name: str, value: str | None, *, undo: bool) -> None:
    """Raises AblateError if the words of the command do not go together."""
    from ablate.errors import AblateError

    if undo and action != Action.archive:
        raise AblateError(f"--undo goes with archive, not with {action.value}")
    if value is not None and action in (Action.archive, Action.delete):
        raise AblateError(f"{action.value} takes no text; leave out '{value}'")
    if value is None and action == Action.rename:
        raise AblateError(f"write the new name: ablate study rename {name} NEW")


def _annotate(
    notes: Notes,
    name: str,
    action: Action,
    value: str | None,
    before: Note,
    *,
    undo: bool,
) -> None:
    """Shows or changes the note or the tags of a study."""
    from ablate.store.notes import ARCHIVED, STUDY, tags_of

    if action == Action.archive:
        others = [tag for tag in before.tags if tag != ARCHIVED]
        tags = tags_of(", ".join(others if undo else [*others, ARCHIVED]))
        notes.put(name, STUDY, replace(before, tags=tags))
        if undo:
            tell(f"Lists show {name} again.")
        else:
            tell(f"Lists leave {name} out; ablate status --all shows it.")
    elif value is None:
        say(before.text if action == Action.note else ", ".join(before.tags))
    elif action == Action.note:
        notes.put(name, STUDY, replace(before, text=value.strip()))
        tell(f"Wrote the note of {name}.")
    else:
        notes.put(name, STUDY, replace(before, tags=tags_of(value)))
        tell(f"Wrote the tags of {name}.")


def _after_renaming(stored: StudyStatus, new: str) -> str:
    """Returns what keeps the new name of a study."""
    if stored.space is not None and stored.space.reported is not None:
        return (
            f"Keep further runs with `--name {new}`; without it, the next `judge --keep` of"
            f" this file makes a study '{stored.name}' beside it."
        )
    from ablate.space.load import study_name
    from ablate.text.document import parse

    # The study may have been renamed before.
    declared = parse(stored.document, stored.file).values.get("name")
    return (
        f"Write `name: {new}` into {stored.file}; without it, the next run of this file"
        f" declares a study '{declared or study_name(stored.file)}' beside it."
    )


def _rename(url: str, notes: Notes, name: str, new: str) -> None:
    from ablate.store.writer import Writer

    with Writer(url) as writer:
        renamed = writer.rename(name, new)
    notes.rename(renamed)


def _delete(url: str, notes: Notes, name: str) -> None:
    from ablate.store.notes import Note
    from ablate.store.writer import Writer

    with Writer(url) as writer:
        number = writer.remove(name)
    for study_name, trial in notes.all():
        if study_name == name:
            notes.put(name, trial, Note())
    tell(f"Removed {name} and {number} trials that no other study has.")
    if number:
        tell("To free the disk space of their checkpoints: ablate disk --free unused")
