"""Reads which test images the trials of a study classify correctly."""

from __future__ import annotations

from sqlalchemy import Connection, select

from ablate.records import CorrectImages
from ablate.store.sql_tables import cell_trials, cells, correct_images, studies


def images_of(
    connection: Connection, study: str
) -> dict[tuple[int, int], CorrectImages]:
    """Returns the images of a study's completed trials, by row and seed."""
    query = (
        select(
            cells.c.number,
            cell_trials.c.seed,
            correct_images.c.images,
            correct_images.c.bits,
        )
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .join(correct_images, correct_images.c.trial_hash == cell_trials.c.trial_hash)
        .join(studies, studies.c.id == cells.c.study_id)
        .where(studies.c.name == study)
    )
    return {
        (row.number, row.seed): CorrectImages(images=row.images, bits=bytes(row.bits))
        for row in connection.execute(query)
    }
