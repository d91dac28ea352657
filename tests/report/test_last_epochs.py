"""The note that a mean over the last epochs would need fewer seeds."""

from __future__ import annotations

import numpy as np
import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Metric, Trial
from ablate.report.last_epochs import last_epochs_note, variance_share
from ablate.results.study import Study

TOP1 = Metric("top1", direction="max")


def by_row(table: np.ndarray) -> dict[int, dict[int, float]]:
    return {
        row: {seed: float(value) for seed, value in enumerate(values)}
        for row, values in enumerate(table)
    }


@pytest.mark.parametrize(
    ("rows", "seeds", "share", "low", "high"),
    [
        (5, 3, 1.0, 0.03, 0.07),
        (7, 5, 1.0, 0.03, 0.07),
        (7, 5, 0.3, 0.98, 1.0),
        (5, 3, 0.3, 0.88, 0.97),
    ],
)
def test_the_note_appears_where_the_variance_is_smaller(
    rows: int, seeds: int, share: float, low: float, high: float
) -> None:
    generator = np.random.default_rng(rows)
    notes = 0
    count = 1000
    for _ in range(count):
        single, other = generator.standard_normal((2, rows, seeds))
        mean = np.sqrt(share) * (0.9 * single + np.sqrt(1 - 0.9**2) * other)
        common = 2 * generator.standard_normal(seeds)
        note = last_epochs_note(TOP1, by_row(single + common), by_row(mean + common))
        notes += bool(note)
    assert low <= notes / count <= high


def test_too_little_to_say_anything_gives_no_note() -> None:
    table = np.random.default_rng(0).standard_normal((4, 3))
    assert variance_share(by_row(table), by_row(table / 2)) is not None
    assert variance_share({}, {}) is None
    assert variance_share(by_row(table[:2]), by_row(table[:2] / 2)) is None
    assert variance_share(by_row(table[:, :2]), by_row(table[:, :2] / 2)) is None
    assert variance_share(by_row(0 * table), by_row(table)) is None
    assert variance_share(by_row(table), by_row(table)) is None
    partial = by_row(table)
    del partial[3][1]
    share = variance_share(partial, by_row(table / 2))
    assert share is not None
    assert share == variance_share(by_row(table[:3]), by_row(table[:3] / 2))


TEXT = """
name: noisy
question: Does a shortcut help?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {shortcuts.count: [0, 1], layout: [serial, parallel]}
seeds: 5
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 12, batch_size: 50, warmup_epochs: 0}
"""


def jumping(trial: Trial, number: int) -> Epoch:
    """An epoch of a training that jumps around its mean."""
    noise = np.random.default_rng([number, int(trial.hash[:8], 16)]).standard_normal()
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": 50 + noise, "top5": 90.0},
        lr=1e-3,
        seconds=0.1,
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("", True),
        ("metric: {top1: {over: 3}}\n", False),
        ("validation", False),
        ("epochs: 9", False),
    ],
)
def test_effects_show_it(options: Options, change: str, expected: bool) -> None:
    text = TEXT + change if change.endswith("\n") else TEXT
    if change == "validation":
        text = text.replace("test_images: 50", "test_images: 50, validation: 0.2")
    if change == "epochs: 9":
        text = text.replace("epochs: 12", change)
    pipeline.run(
        space.load(text, "noisy.yaml"),
        "noisy.yaml",
        options,
        executor=SimulatedExecutor(jumping),
    )
    notes = Study("noisy", options.url).effects_table().notes
    assert any("metric: {top1: {over: 5}}" in note for note in notes) == expected
