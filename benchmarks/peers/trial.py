"""The trials that all peers train: the same networks, data, seeds and epochs.

A peer calls `train` with the number of a trial, in the folder of `space.yaml`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path


def train(number: int) -> float:
    """Trains one trial. Returns its top-1 accuracy in percent."""
    # Imported here, so that a process that only starts others stays light.
    from ablate import space
    from ablate.families import resolve
    from ablate.records import Trial
    from ablate.training import Training

    declared = space.read(Path("space.yaml"))
    layouts = declared.factors.levels["layout"]
    seed = declared.seeds.numbers[number // len(layouts)]
    cell = {**declared.factors.fixed, "layout": layouts[number % len(layouts)]}
    network = resolve(declared.network.backbone, 8, 1, 10, cell)
    trial = Trial(network, declared.recipe, declared.data, seed)
    training = Training(trial, Path(tempfile.mkdtemp(dir=".")))
    while not training.finished:
        training.epoch()
    training.save()
    training.close()
    return training.epochs[-1].metrics["top1"]
