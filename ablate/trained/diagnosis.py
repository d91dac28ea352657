"""Takes diagnostics of networks that are already trained, from their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ablate.errors import DiagnosticError, StoreError
from ablate.pipeline import Options
from ablate.records import PUBLISHED_WEIGHTS, Data, Diagnostics, Measured, Trained
from ablate.scheduling.stored_space import declared_space
from ablate.store.reader import Reader


@dataclass(frozen=True)
class Diagnosed:
    """The result of a diagnosis.

    Attributes:
        studies: the studies of the trials.
        trials: number of trials diagnosed.
        without: number of trials that are not completed or have no checkpoint.
    """

    studies: tuple[str, ...]
    trials: int
    without: int


def diagnose(
    targets: tuple[str, ...],
    diagnostics: Diagnostics,
    options: Options,
    hear: Callable[[int, int], None] = lambda done, all_: None,
) -> Diagnosed:
    """Takes diagnostics of trained networks from their checkpoints, and stores them.

    Args:
        targets: names of studies, or hashes of trials or prefixes of them.
        hear: receives the number of finished trials and of all trials.

    Raises:
        UnknownName: there is no such study or trial.
        AblateError: a diagnostic cannot be taken, or the store is being written to.
    """
    from ablate.diagnostics import require
    from ablate.plan.start import prepared
    from ablate.store.writer import Writer
    from ablate.training.diagnose import take_diagnostics

    require(diagnostics.names)
    with Reader(options.url) as reader:
        pairs = [reader.studies.target(target) for target in targets]
        studies = tuple(dict.fromkeys(study for study, _ in pairs))
        documents = {study: reader.studies.get(study) for study in studies}
        chosen: dict[str, tuple[Trained, Data]] = {}
        for study, key in pairs:
            documents[study].refuse_reported()
            declared = declared_space(documents[study])
            if declared.network.trainer:
                raise DiagnosticError(
                    f"{study} is trained by trainer {declared.network.trainer}, whose networks"
                    " ablate does not know; diagnostics are not defined on them"
                )
            for trial in reader.trials.trained(study):
                if key in (None, trial.hash):
                    # Images are prepared as in training: published weights determine
                    # their normalisation and crop.
                    data = replace(
                        declared.data, image_size=trial.architecture.image_size
                    )
                    if trial.start.startswith(f"{PUBLISHED_WEIGHTS} "):
                        weights = PUBLISHED_WEIGHTS
                    else:
                        weights = ""
                    chosen[trial.hash] = (
                        trial,
                        prepared(
                            data, trial.recipe, weights, trial.architecture.backbone
                        ),
                    )
    without = 0
    with Writer(options.url) as writer:
        root = options.checkpoints_of(writer.store_id)
        for done, (trial, data) in enumerate(chosen.values(), 1):
            if trial.completed:
                taken = take_diagnostics(
                    trial, data, f"{root}/{trial.hash}", diagnostics
                )
            else:
                taken = None
            if taken is None:
                without += 1
            elif not writer.write(Measured(trial.hash, taken)):
                raise StoreError(
                    f"another driver trains {trial.hash}; wait for it, then measure"
                    " the diagnostics again"
                )
            hear(done, len(chosen))
    return Diagnosed(studies, len(chosen) - without, without)
