"""A study that is declared again and again, with results that are known beforehand."""

from __future__ import annotations

import random
from collections.abc import Callable

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Ended, Epoch, Event, Level, Status, Trial
from ablate.report.effect import Effect
from ablate.results.review import review
from ablate.results.study import Study

# Six rows; `layout` helps by three points, far beyond the noise of 0.3.
TEXT = """
question: Which part helps?
backbone: {family: vit, patch_size: 4, width: 8, depth: 2, heads: 2}
factors:
  layout: [serial, parallel]
  shortcuts.count: [0, 1]
  ffn.kernel: [none, 3]
data: digits
recipe: {epochs: 1, warmup_epochs: 0}
seeds: 4
"""
HELPS = 4
Curve = Callable[[Trial, int], Epoch]


def epoch(trial: Trial, number: int) -> Epoch:
    helps = 3.0 * (trial.architecture.settings.get("layout") == "parallel")
    noise = random.Random(trial.hash).gauss(0, 0.3)
    top1 = 70 + helps + random.Random(f"seed {trial.seed}").gauss(0, 1) + noise
    return Epoch(
        number=number,
        metrics={
            "train_loss": 1.0,
            "loss": 1.0 + random.Random(trial.hash).random(),
            "top1": top1,
            "top5": 99.0,
        },
        lr=1e-3,
        seconds=1.0,
    )


class Desk:
    """A study that is declared again and again in one store."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def run(
        self,
        text: str,
        name: str = "parts",
        most: int | None = None,
        curve: Curve = epoch,
    ) -> Study:
        """Runs a text until so many trials have ended."""
        ended: list[str] = []

        def event(happened: Event) -> None:
            if isinstance(happened, Ended) and happened.status == Status.COMPLETED:
                ended.append(happened.trial)

        hooks = pipeline.Hooks(
            event=event, stop=lambda: most is not None and len(ended) >= most
        )
        declared = space.load(text, f"{name}.yaml")
        pipeline.run(
            declared, f"{name}.yaml", self.options, hooks, SimulatedExecutor(curve)
        )
        return Study(name, self.options.url)


def helps(row: int) -> bool:
    return row >= HELPS


def by_row(study: Study) -> dict[int, Effect]:
    return {effect.row: effect for effect in study.effects()}


def names(study: Study) -> set[str]:
    return {finding.name for finding in review(study.name, study.store)}


def with_seeds(seeds: str) -> str:
    return TEXT.replace("seeds: 4", f"seeds: {seeds}")


def changed(trial: Trial) -> dict[str, Level]:
    """The factors of `TEXT` that the trial changes."""
    settings = trial.architecture.settings
    names = ("layout", "shortcuts.count", "ffn.kernel")
    return {name: settings[name] for name in names if name in settings}
