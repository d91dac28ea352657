"""Trains a stored trial again and compares every epoch with the stored one.

Everything that it needs comes from the store.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scipy import special

from ablate import execution
from ablate.errors import AblateError, StoreError
from ablate.machine import provenance
from ablate.parts import checkout_of
from ablate.pipeline import Options, cost_plan
from ablate.records import (
    COST_REVISION,
    Ended,
    Epoch,
    Event,
    Job,
    Known,
    Order,
    Progressed,
    Space,
    Status,
    StudyResults,
    Tested,
    Trial,
)
from ablate.report.blocks import pooled_spread
from ablate.scheduling.stored_space import validated_space
from ablate.store.reader import Reader
from ablate.text import advice

CIRCUMSTANCES = ("ablate", "commit", "torch", "timm", "cpu", "gpus")


@dataclass(frozen=True)
class Reproduced:
    """The result of training a trial again.

    Attributes:
        same: every number of every epoch, and of the final test, is the same to the
            last bit.
        first: the first epoch that differs; None if none does.
        stored, found: the final metric of the trial.
        noise: the largest difference between two trainings by chance alone, in 99 of
            100 cases; None if unknown.
        changed: what has changed: versions, commit and hardware, by name, before and
            now.
    """

    study: str
    trial: str
    metric: str
    epochs: int
    same: bool
    first: int | None
    stored: float
    found: float
    noise: float | None
    device: str
    changed: dict[str, tuple[str, str]]

    @property
    def within_noise(self) -> bool:
        return self.noise is not None and abs(self.found - self.stored) <= self.noise

    @property
    def agrees(self) -> bool:
        """Whether the results agree.

        On the same kind of CPU they must agree to the last bit, elsewhere within the
        noise of a seed.
        """
        # Kernels of a GPU add up in an order that changes from run to run.
        exact = self.device == "cpu" and not {"torch", "cpu"} & set(self.changed)
        return self.same or (not exact and self.within_noise)


def reproduce(
    text: str,
    options: Options,
    hear: Callable[[int, int], None] = lambda done, of: None,
) -> Reproduced:
    """Trains a completed trial again in this process.

    Nothing is written to the store. After a kill, the next call resumes from its own
    checkpoint (under RUNS/reproduced).

    Args:
        text: the trial's hash, or a prefix of it.
        hear: receives the number of finished epochs and of all epochs.

    Raises:
        UnknownName: there is no such trial.
        AblateError: it is not completed, is no longer part of its study's plan, or
            fails.
    """
    with Reader(options.url) as reader:
        study, key = reader.studies.target(text)
        if key is None:
            raise AblateError(
                f"'{text}' is a study; name one of its trials, as"
                f" `{advice.command('status', text)}` lists them"
            )
        stored = reader.studies.get(study)
        stored.refuse_reported()
        stored_trial = reader.trials.known([key])[key]
        results = reader.studies.results(study)
        before = next(
            (
                attempt
                for attempt in reader.trials.circumstances(study)
                if attempt.trial == key
            ),
            None,
        )
    if stored_trial.status != Status.COMPLETED or before is None:
        remedy = ""
        # `resume` does not train a trial again that diverged or was stopped early.
        if stored_trial.status not in (
            Status.DIVERGED,
            Status.PRUNED,
            Status.ABANDONED,
        ):
            remedy = f"; complete it with: {advice.command('resume', study)}"
        raise AblateError(
            f"trial {key} is {stored_trial.status}, and only completed trials can be"
            f" reproduced{remedy}"
        )
    declared = validated_space(stored)
    trial = next(
        (t for t in cost_plan(declared, options.url).trials if t.hash == key), None
    )
    if trial is None:
        raise StoreError(
            f"the plan that this version of ablate makes for {study} does not contain"
            f" trial {key}. The rules that count costs may have changed (they are now at"
            f" version {COST_REVISION}), and controls and limits depend on costs. Train"
            " the cells of the new plan: ablate run with the study's file"
        )
    # With the checkpoints of the study, nothing would be trained again.
    folder = options.runs / "reproduced" / Path(options.url).stem
    folder.mkdir(parents=True, exist_ok=True)
    epochs, tested = _trained(trial, declared, folder, hear)
    shutil.rmtree(folder / key, ignore_errors=True)
    now = vars(provenance.collect())
    first = next(
        (
            e.number
            # If the numbers of epochs differ, `same` is false by their lengths.
            for e, old in zip(epochs, stored_trial.epochs, strict=False)
            if _differs(e, old)
        ),
        None,
    )
    metric = declared.criterion.compared
    # The result of a trial with a validation split is that of its final test.
    measured = dict(epochs[-1].metrics)
    if tested is not None:
        measured |= tested.metrics
    final = {name: measured[name] for name in stored_trial.final}
    again = Known(Status.COMPLETED, tuple(epochs), final)
    before_value, value = stored_trial.value(metric), again.value(metric)
    assert before_value is not None and value is not None, "both are completed"
    return Reproduced(
        study=study,
        trial=key,
        metric=metric.name,
        epochs=len(epochs),
        same=first is None
        and len(epochs) == len(stored_trial.epochs)
        and final == dict(stored_trial.final),
        first=first,
        stored=before_value,
        found=value,
        noise=_noise(results),
        device=before.device,
        changed={
            name: (str(getattr(before, name)), str(now[name]))
            for name in CIRCUMSTANCES
            if str(getattr(before, name)) != str(now[name])
        },
    )


def _noise(results: StudyResults) -> float | None:
    try:
        sd, freedom = pooled_spread(results)
    except AblateError:
        return None
    # A difference of two trainings has the standard deviation sd * sqrt(2).
    return float(special.stdtrit(freedom, 0.995)) * sd * math.sqrt(2)


def _differs(epoch: Epoch, other: Epoch) -> bool:
    return epoch.metrics != other.metrics or epoch.lr != other.lr


def _trained(
    trial: Trial, declared: Space, folder: Path, hear: Callable[[int, int], None]
) -> tuple[list[Epoch], Tested | None]:
    """Returns the epochs of the trial, trained here, and its final test.

    Only a trial with a validation split has a final test.
    """
    epochs: dict[int, Epoch] = {}
    ended: list[Ended] = []

    def emit(event: Event) -> None:
        if isinstance(event, Progressed):
            epochs.update({epoch.number: epoch for epoch in event.epochs})
            hear(len(epochs), trial.recipe.epochs)
        elif isinstance(event, Ended):
            ended.append(event)

    job = Job(
        trial=trial,
        checkpoints=str(folder.resolve()),
        resources=declared.resources,
        checkout=checkout_of(trial, folder / "commits"),
    )
    order = Order(
        jobs=[job],
        metric=declared.criterion.measured,
        direction=declared.criterion.direction,
        resources=declared.resources,
        epochs=trial.recipe.epochs,
    )
    execution.make("inline").run(order, emit, lambda: False)
    if not ended or ended[-1].status != Status.COMPLETED:
        reason = ended[-1].error.strip().splitlines()[-1:] if ended else []
        raise AblateError(
            f"trial {trial.hash} did not complete this time:"
            f" {' '.join(reason) or 'it was stopped'}"
        )
    return [epochs[number] for number in sorted(epochs)], ended[-1].tested
