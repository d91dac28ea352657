"""Looks inside networks that are trained already, from their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ablate import space
from ablate.errors import StoreError
from ablate.pipeline import Options
from ablate.records import PUBLISHED_WEIGHTS, Data, Diagnostics, Measured, Trained
from ablate.store.reader import Reader


@dataclass(frozen=True)
class Looked:
    """What a diagnosis came to: trials looked at, and those that are not trained to
    their end or have no checkpoint.
    """

    studies: tuple[str, ...]
    trials: int
    without: int


def diagnose(
    targets: tuple[str, ...],
    wanted: Diagnostics,
    options: Options,
    hear: Callable[[int, int], None] = lambda done, all_: None,
) -> Looked:
    """Takes diagnostics of trained networks from their checkpoints, and stores them.

    Args:
        targets: names of studies, or hashes of trials (or their beginnings).
        hear: is told how many of how many trials are done.

    Raises:
        UnknownName: there is no such study or trial.
        AblateError: a diagnostic cannot be taken, or the store is being written to.
    """
    from ablate.diagnostics import require
    from ablate.plan.start import prepared
    from ablate.store.writer import Writer
    from ablate.training.look import look

    require(wanted.names)
    with Reader(options.url) as reader:
        found = [reader.target(target) for target in targets]
        studies = tuple(dict.fromkeys(study for study, _ in found))
        documents = {study: reader.study(study) for study in studies}
        chosen: dict[str, tuple[Trained, Data]] = {}
        for study, key in found:
            declared = space.load(
                documents[study].document, documents[study].file, stored=True
            )
            for trial in reader.trained(study):
                if key in (None, trial.hash):
                    # Images as the network was trained on them: published weights say
                    # how they are normalised and cut.
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
                taken = look(trial, data, f"{root}/{trial.hash}", wanted)
            else:
                taken = None
            if taken is None:
                without += 1
            elif not writer.write(Measured(trial.hash, taken)):
                raise StoreError(
                    f"another driver trains {trial.hash}; wait for it, then look inside"
                )
            hear(done, len(chosen))
    return Looked(studies, len(chosen) - without, without)
