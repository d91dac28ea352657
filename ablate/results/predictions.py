"""Effects at a larger size, stored before that size is trained.

A prediction belongs to what it was made from: the rows, seeds and sizes that were
compared, and the unit and size that it is for (`basis_of`). While these stay the same, it
is never made again. It is not made if any result of the larger size could be known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ablate.errors import AblateError
from ablate.identity import content_hash
from ablate.records import Across, Space, level_text
from ablate.report.predict import predict
from ablate.results.sizes import sizes_of
from ablate.scheduling.preview import Preview
from ablate.store.declarations import digest_of
from ablate.store.reader import Reader
from ablate.store.session import StoreSession
from ablate.text.advice import option


def with_predictions(previews: Sequence[Preview], reader: Reader) -> list[Preview]:
    """Returns the previews of all sizes with the predictions that are stored for them."""
    across = previews[0].plan.space.across
    if across is None or across.predict is None:
        return list(previews)
    basis = basis_of(previews)
    stored = reader.studies.stored_sizes(across.ladder)
    known = next((each for each in stored if each.predicted_from == basis), None)
    if known is None:
        return list(previews)
    return [_described(preview, known) for preview in previews]


def basis_of(previews: Sequence[Preview]) -> str:
    """Returns a hash of what a prediction is made from.

    Args:
        previews: those of all sizes, the predicted one last.
    """
    *sizes, ahead = previews
    across = ahead.plan.space.across
    assert across is not None, "there is a predicted size"
    rows = [
        {name: level_text(level) for name, level in cell.levels.items()}
        for cell in ahead.plan.cells
    ]
    return content_hash(
        {
            "per": across.per,
            "predict": level_text(across.predict),
            "rows": rows,
            "sizes": sorted(digest_of(each.full_plan or each.plan) for each in sizes),
        }
    )


def refuse_without_prediction(across: Across | None, name: str) -> None:
    """Raises AblateError unless a space predicts a size, and its effects are stored.

    Args:
        across: the sizes of the space.
        name: that of the space.
    """
    if across is None or across.predict is None:
        raise AblateError(
            f"{option('predicted')} trains the size that `across` predicts, and {name}"
            " predicts none; add one, as in across: {size.width: [16, 24, 32], predict:"
            " 64}"
        )
    if not across.predicted_at:
        raise AblateError(
            f"{across.ladder} has no prediction. It is stored when all trials of the"
            f" other sizes have completed: train them first, without"
            f" {option('predicted')}. If they have, no row has two seeds, or results of"
            " the predicted size were known before"
        )


def store_predictions(
    previews: Sequence[Preview], studies: Sequence[int], store: StoreSession
) -> None:
    """Stores the effects at the predicted size, unless results of it may be known.

    Args:
        previews: those of all sizes, the predicted one last.
        studies: the numbers of the studies of the other sizes.
    """
    ahead = previews[-1].plan
    across = ahead.space.across
    if across is None or not across.is_predicted or across.predicted_at:
        return
    # Trials that choose settings may be those of another size.
    own = [trial for cell in ahead.cells for trial in (*cell.trials, *cell.by_setting)]
    if store.reader.trials.have_results(own):
        return
    position = across.position(ahead.cells[0].cost, ahead.space.images_seen)
    assert position is not None, "the plan was accepted"
    sizes = sizes_of(across.ladder, store.reader)
    seeds = len(ahead.space.seeds.numbers)
    predictions = tuple(predict(sizes, math.log2(position), seeds))
    if not predictions:
        return
    made = replace(
        across,
        predictions=predictions,
        predicted_position=position,
        predicted_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        predicted_from=basis_of(previews),
    )
    for preview, study in zip(previews, studies, strict=False):
        store.writer.describe(study, _described(preview, made).plan.space)


def _described(preview: Preview, known: Across) -> Preview:
    """Returns a preview whose space has the predictions of another size."""

    def described(space: Space) -> Space:
        assert space.across is not None, "all sizes are those of one ladder"
        across = replace(
            space.across,
            predictions=known.predictions,
            predicted_position=known.predicted_position,
            predicted_at=known.predicted_at,
            predicted_from=known.predicted_from,
        )
        return replace(space, across=across)

    full = preview.full_plan
    return replace(
        preview,
        plan=replace(preview.plan, space=described(preview.plan.space)),
        full_plan=replace(full, space=described(full.space)) if full else None,
    )
