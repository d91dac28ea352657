"""The space of a stored study."""

from __future__ import annotations

from dataclasses import replace

from ablate.errors import StoreError
from ablate.own import registry
from ablate.records import Space, base_name
from ablate.store.reader import Reader
from ablate.store.studies import StudyStatus
from ablate.text import escape
from ablate.text.advice import option


def declared_space(study: StudyStatus) -> Space:
    """The space of a stored study, as it was last run."""
    if study.space.reported is not None:
        # It may have got another name since.
        return replace(study.space, name=study.name)
    return study.space


def validated_space(study: StudyStatus) -> Space:
    """Returns the space of a stored study, validated again with today's catalogues.

    This is the space to train with. `declared_space` is the one to read with.

    Raises:
        SpaceError: the YAML text is not valid today.
        StoreError: the study was run with files of the user, and none is named now; or it
            was trained elsewhere.
    """
    from ablate import space

    study.refuse_reported()

    parts = study.space.parts
    if parts and not registry.named():
        # A message of the loader would only say that a name is unknown.
        options = " ".join(f"{option('with')} {escape.shell(part)}" for part in parts)
        raise StoreError(
            f"{study.name} was last run with your own parts; add {options}"
        )
    validated = space.load(study.document, study.file)
    if validated.across is None and study.name == base_name(study.name):
        # It may have got another name than its file gives it.
        validated = replace(validated, name=study.name)
    if study.space.seeds.looks and not validated.seeds.looks:
        # The text declares a fixed number of seeds; the run had the option.
        return space.until_decided(validated, study.space.seeds.looks.most)
    return validated


def with_last_until_decided(space: Space, reader: Reader) -> Space:
    """Returns a space with the seeds until it is decided that its last run had.

    They came from an option, which the text does not have. The same text, run again
    without the option, goes on as it was.
    """
    from ablate.space import until_decided

    if space.seeds.looks is not None:
        return space
    for study in reader.studies.all():
        last = study.space
        if study.name != space.name or study.document != space.document:
            continue
        if last.seeds.looks is not None:
            return until_decided(space, last.seeds.looks.most)
    return space


def was_search(name: str, reader: Reader) -> bool:
    """Whether a study was a search when it was last run."""
    return any(
        declared_space(study).strategy is not None
        for study in reader.studies.all()
        if study.name == name
    )
