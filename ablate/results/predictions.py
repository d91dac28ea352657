"""Effects at a larger size, stored before that size is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ablate.errors import AblateError
from ablate.records import WITH_RESULT, Plan, Space
from ablate.records.changes import changes
from ablate.records.plain import to_data
from ablate.report.predict import predict
from ablate.results.sizes import sizes_of
from ablate.store.reader import Reader
from ablate.store.session import StoreSession
from ablate.text.advice import option


def with_predictions(spaces: Sequence[Space], reader: Reader) -> list[Space]:
    """Returns the sizes of a space with the predictions that are stored for them."""
    first = spaces[0]
    stored = reader.studies.sizes(first.across.ladder) if first.across else []
    last = stored[0].space if stored else None
    known = last.across if last is not None else None
    if (
        first.across is None
        or last is None
        or known is None
        or known.predict != first.across.predict
        or changes(to_data(last), to_data(first))
    ):
        return list(spaces)
    return [
        replace(
            space,
            across=replace(
                space.across,
                predictions=known.predictions,
                predicted_at=known.predicted_at,
            ),
        )
        for space in spaces
        if space.across is not None
    ]


def refuse_unpredicted(spaces: Sequence[Space]) -> None:
    """Raises AblateError unless the effects at the predicted size are stored."""
    across = spaces[0].across
    if across is None or across.predict is None:
        raise AblateError(
            f"{option('predicted')} trains the size that `across` predicts, and"
            f" {spaces[0].name} predicts none; add one, as in across: {{size.width: [16,"
            " 24, 32], predict: 64}"
        )
    if not across.predicted_at:
        raise AblateError(
            f"{across.ladder} has no prediction. It is stored when the trials of all other"
            f" sizes have a result: train them first, without {option('predicted')}. If"
            " they are trained, results of it were known before, from another study"
        )


def store_predictions(
    plans: Sequence[Plan], studies: Sequence[int], store: StoreSession
) -> None:
    """Stores the effects at the predicted size, unless there are results of it already.

    Args:
        plans: those of all sizes, the predicted one included.
        studies: the numbers of the studies of the other sizes.
    """
    ahead = plans[-1]
    across = ahead.space.across
    if across is None or not across.is_predicted or across.predicted_at:
        return
    known = store.reader.trials.known(trial.hash for trial in ahead.trials)
    if any(trial.status in WITH_RESULT for trial in known.values()):
        return
    position = across.position(ahead.cells[0].cost, ahead.space.images_seen)
    assert position is not None, "the plan was accepted"
    predictions = tuple(
        predict(sizes_of(across.ladder, store.reader), math.log2(position))
    )
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    for plan, study in zip(plans, studies, strict=False):
        of_size = plan.space.across
        assert of_size is not None, "all sizes are those of one ladder"
        described = replace(of_size, predictions=predictions, predicted_at=at)
        store.writer.describe(study, replace(plan.space, across=described))
