"""The sizes of a ladder, from a store."""

from __future__ import annotations

from ablate.errors import AblateError
from ablate.report.across import Size
from ablate.scheduling.stored_space import declared_space
from ablate.store.reader import Reader


def sizes_of(name: str, reader: Reader) -> list[Size]:
    """Returns all sizes of a ladder but the predicted one.

    Args:
        name: that of the ladder, or of the study of one of its sizes.

    Raises:
        UnknownName: there is neither.
        AblateError: the study has one size.
    """
    stored = reader.studies.sizes(name)
    if not stored:
        space = reader.studies.get(name).space
        if space is not None and space.across is not None:
            stored = reader.studies.sizes(space.across.ladder)
    sizes = []
    for study in stored:
        space = declared_space(study)
        results = reader.studies.results(study.name)
        if space.across is None or not results.cells:
            continue
        position = space.across.position(results.cells[0].cost, space.images_seen)
        if position is not None:
            sizes.append(
                Size(
                    across=space.across,
                    results=results,
                    position=position,
                    margin=space.criterion.margin,
                )
            )
    if len(sizes) < 2:
        raise AblateError(
            f"{name} has one size; to train every row at several, add to its file:"
            " across: {size.width: [16, 24, 32, 48]}"
        )
    return sizes
