"""`ablate status --error-budget`: the studies of a store as one project."""

from __future__ import annotations

import json
import random

import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.results.project import budget_of
from ablate.results.study import Study
from tests.conftest import TINY, Say
from tests.store.desk import HELPS, TEXT, Desk


def noise(trial: Trial, number: int) -> Epoch:
    value = 70 + random.Random(trial.hash).gauss(0, 1)
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": value, "top5": 99.0},
        lr=1e-3,
        seconds=1.0,
    )


@pytest.fixture
def desk(options: Options) -> Desk:
    return Desk(options)


def other_data(text: str, images: int) -> str:
    return text.replace(
        "data: digits", f"data: {{name: digits, train_images: {images}}}"
    )


def test_studies_are_in_the_order_of_their_results(desk: Desk) -> None:
    desk.run(other_data(TEXT, 200), "second_name_first", curve=noise)
    desk.run(TEXT, "helps")
    desk.run(other_data(TEXT, 300), "last", curve=noise)
    found = budget_of(desk.options.url)
    assert [line.test.name for line in found.lines] == [
        "second_name_first",
        "helps",
        "last",
    ]
    # Running a finished study again changes no place.
    desk.run(other_data(TEXT, 200), "second_name_first", curve=noise)
    assert [line.test.name for line in budget_of(desk.options.url).lines] == [
        "second_name_first",
        "helps",
        "last",
    ]


def test_p_values_are_those_of_effects(desk: Desk) -> None:
    study = desk.run(TEXT, "helps")
    (line,) = budget_of(desk.options.url).lines
    for effect in study.effects():
        assert effect.judged is not None
        assert line.test.p_values[f"row {effect.row}"] == effect.judged.p
    assert f"row {HELPS}" in line.standing


def test_an_open_study_does_not_count(desk: Desk) -> None:
    desk.run(TEXT, "open", most=5)
    assert budget_of(desk.options.url).lines == ()
    desk.run(TEXT, "open")
    assert len(budget_of(desk.options.url).lines) == 1


def test_primary_factors_are_the_family_of_their_study(desk: Desk) -> None:
    text = TEXT + "design: grid\nprimary: [layout]\n"
    desk.run(text, "factors")
    (line,) = budget_of(desk.options.url).lines
    assert "layout = parallel" in line.standing


def test_the_verb_prints_it(say: Say, options: Options) -> None:
    declared = space.load(TINY, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", options, executor=SimulatedExecutor())
    code, out, _ = say("status", "--error-budget", "--runs", str(options.runs))
    assert code == 0
    assert "Error budget: the next study is tested at" in out
    code, out, _ = say(
        "status", "--error-budget", "--runs", str(options.runs), "--format", "json"
    )
    (row,) = json.loads(out)
    assert row["study"] == "tiny"
    assert Study("tiny", options.url).effects()


def test_the_budget_of_one_study_is_refused(say: Say) -> None:
    code, _, error = say("status", "tiny", "--error-budget")
    assert code == 2
    assert "leave out tiny" in error
