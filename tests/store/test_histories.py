"""Random histories of a store: what may be tested, and that all outputs agree on it."""

from __future__ import annotations

import html
import json
import random
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from types import ModuleType

import pytest

from ablate.pipeline import Options
from ablate.records import Epoch, Standing, Trial
from ablate.report.effect import Effect
from ablate.report.paper_table import PaperStyle
from ablate.report.table import render
from ablate.report.verdicts import Verdict
from ablate.report.wording import interval_text, sentence
from ablate.results import html_report
from ablate.results.study import Study
from tests.benchmarks import load
from tests.store.desk import Desk, epoch

# Each test runs several studies.

CELLS = 6
SEEDS = 9
DECAYS = [round(0.1 + 0.01 * cell, 2) for cell in range(CELLS)]


def text_of(rows: list[int], seeds: str, name: str) -> str:
    listed = ", ".join(f"{{recipe.weight_decay: {DECAYS[cell]}}}" for cell in rows)
    return f"""
name: {name}
question: Which decay helps?
backbone: {{family: vit, patch_size: 4, width: 8, depth: 2, heads: 2}}
factors: {{recipe.weight_decay: {[DECAYS[cell] for cell in rows]}}}
design: rows
rows: [{listed}]
data: digits
recipe: {{epochs: 1, warmup_epochs: 0}}
seeds: {seeds}
"""


HISTORIES = pytest.mark.parametrize(
    "histories",
    [range(2), pytest.param(range(2, 26), marks=pytest.mark.proof)],
    ids=len,
)


@pytest.fixture(scope="module")
def users() -> ModuleType:
    return load("users")


class Both:
    """A history in memory, and the same in a real store."""

    def __init__(self, users: ModuleType, options: Options, number: int) -> None:
        self.chance = random.Random(number)
        values = users.np.random.default_rng(number).normal(70, 1, (CELLS, SEEDS + 40))
        # Large effects, so that there are verdicts of all kinds.
        values[1] += 6
        values[2] -= 6
        self.memory = users.Desk([values, values[::-1]])
        self.values = values
        self.real = Desk(options)
        self.names: set[str] = set()

    def curve(self, trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        cell = DECAYS.index(trial.recipe.weight_decay)
        top1 = float(self.values[cell, trial.seed])
        return replace(made, metrics={**made.metrics, "top1": top1})

    def step(self) -> None:
        name = self.chance.choice(["a", "a", "b", "c"])
        first = self.chance.choice([0, 0, 0, 1, 3])
        others = [cell for cell in range(CELLS) if cell != first]
        kept = sorted(self.chance.sample(others, self.chance.randint(1, 4)))
        seeds: list[int] | int = self.chance.choice(
            [1, 3, 3, 4, 5, [3, 4, 5], [6, 7, 8]]
        )
        most = self.chance.choice([None, None, None, 2, 7])
        self.run([first, *kept], seeds, name, most)

    def run(
        self,
        rows: list[int],
        seeds: list[int] | int,
        name: str,
        most: int | None,
    ) -> None:
        self.memory.declare(rows, seeds, name)
        self.real.run(text_of(rows, str(seeds), name), name, most, self.curve)
        self.names.add(name)
        with closing(sqlite3.connect(self.real.options.url)) as connection:
            ended = connection.execute(
                "SELECT json_extract(recipe, '$.weight_decay'), seed FROM trials"
                " WHERE status = 'completed'"
            ).fetchall()
        self.memory.ended = {(DECAYS.index(decay), seed) for decay, seed in ended}

    def study(self, name: str) -> Study:
        return Study(name, self.real.options.url)


@pytest.mark.proof
@HISTORIES
def test_memory_and_store_take_the_same_verdicts(
    users: ModuleType, options: Options, histories: range
) -> None:
    """So what holds for simulated users (docs/trust.md) holds for a store."""
    standings = set()
    for number in histories:
        both = Both(users, replace(options, runs=options.runs / str(number)), number)
        for _ in range(6):
            both.step()
        for name in both.names:
            made = [one for one in both.memory.studies if one.name == name][-1]
            stored = both.study(name).results()
            assert stored.before.generation == made.before.generation
            expected = {effect.row: effect for effect in both.memory.look(made)}
            for effect in both.study(name).effects():
                compared = stored.before.rows[effect.row]
                inside = made.before.rows[effect.row]
                assert compared.standing is inside.standing
                assert compared.repeats == inside.repeats
                standings.add(compared.standing)
                assert effect.verdict is expected[effect.row].verdict
                assert effect.withheld is expected[effect.row].withheld
    if len(histories) > 20:
        assert standings == set(Standing)


def check(effect: Effect, margin: float) -> None:
    """The interval contains its estimate and agrees with the verdict."""
    if effect.estimate is None:
        return
    low, high = effect.estimate.low, effect.estimate.high
    assert low <= effect.estimate.value <= high
    if effect.verdict in (Verdict.HELPS, Verdict.HURTS) and not effect.is_step_down:
        assert low > 0 or high < 0
    if effect.verdict is Verdict.INCONCLUSIVE and effect.withheld is None:
        assert low <= 0 <= high
    if effect.verdict is Verdict.SAME:
        assert abs(effect.estimate.value) < margin


@pytest.mark.proof
@HISTORIES
def test_all_outputs_print_the_same_interval(
    users: ModuleType, options: Options, histories: range
) -> None:
    shown = 0
    for number in histories:
        both = Both(users, replace(options, runs=options.runs / str(number)), number)
        for _ in range(5):
            both.step()
        for name in both.names:
            study = both.study(name)
            results, declared = study.read()
            data = json.loads(render(study.effects_table(), "json"))
            file = options.runs / "report.html"
            html_report.write_report(study, file)
            page = html.unescape(file.read_text())
            table = render(study.effects_table(), "md")
            latex = study.paper_table(PaperStyle())
            for effect, row in zip(study.effects(), data, strict=True):
                check(effect, declared.criterion.margin)
                if effect.estimate is None:
                    continue
                shown += 1
                assert (row["low"], row["high"]) == (
                    effect.estimate.low,
                    effect.estimate.high,
                )
                text = interval_text(effect.estimate, results.metric)
                assert text in table
                said = sentence(effect, results.metric, declared.criterion.margin)
                interval = re.sub(r".* \(|\)", "", text)
                assert interval in said
                assert interval in page
                if effect.verdict in (Verdict.HELPS, Verdict.HURTS):
                    sign = "$" if effect.estimate.value < 0 else "+"
                    assert sign in latex
    assert shown >= 3 * len(histories)
