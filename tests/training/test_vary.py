"""What a seed decides: initial weights, what is drawn while training, and the split."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ablate import pipeline, space
from ablate.data.arrays import load
from ablate.errors import SpaceError
from ablate.pipeline import Options
from ablate.plan.plan import make_plan
from ablate.records import Cost, Plan, Trial
from ablate.records.plain import to_data
from ablate.report.table import render
from ablate.results.review import review
from ablate.results.study import Study
from ablate.store.space_data import from_data
from ablate.training import Training
from tests.conftest import TINY
from tests.store.desk import Desk, names, with_seeds

HELD_OUT = "data: {name: digits, train_images: 200, test_images: 50, validation: 0.2}"
TEXT = TINY.replace("seeds: 2", "seeds: {count: 2, vary: VARY}").replace(
    "data: {name: digits, train_images: 200, test_images: 50}", HELD_OUT
)


@pytest.fixture
def desk(options: Options) -> Desk:
    return Desk(options)


def plan_of(vary: str) -> Plan:
    declared = space.load(TEXT.replace("VARY", vary), "tiny.yaml")
    return make_plan(declared, lambda architecture: Cost(1, 1, 1, 1, 1))


def first_cell(vary: str) -> tuple[Trial, ...]:
    return plan_of(vary).cells[0].trials


def weights(trial: Trial, folder: Path) -> list[torch.Tensor]:
    training = Training(trial, folder / trial.hash)
    found = [one.detach().clone() for one in training._model.parameters()]
    training.close()
    return found


def batch_of(trial: Trial, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels of the first batch, and a number that dropout would draw."""
    training = Training(trial, folder / trial.hash)
    drawn = torch.rand(8)
    _, labels = next(iter(training._work.batches.train(training._order)))
    training.close()
    return labels, drawn


def equal(first: list[torch.Tensor], then: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, then, strict=True))


def test_a_seed_usually_decides_weights_and_order(tmp_path: Path) -> None:
    first, then = first_cell("[order, init]")
    plain = space.load(TEXT.replace("{count: 2, vary: VARY}", "2"), "tiny.yaml")
    known = make_plan(plain, lambda architecture: Cost(1, 1, 1, 1, 1)).cells[0].trials
    assert [one.hash for one in known] == [first.hash, then.hash]
    assert not equal(weights(first, tmp_path), weights(then, tmp_path))
    labels, drawn = batch_of(first, tmp_path)
    others, drawn_then = batch_of(then, tmp_path)
    assert not torch.equal(labels, others)
    assert not torch.equal(drawn, drawn_then)


def test_initial_weights_that_do_not_vary_are_the_same(tmp_path: Path) -> None:
    first, then = first_cell("[order]")
    assert equal(weights(first, tmp_path), weights(then, tmp_path))
    labels, drawn = batch_of(first, tmp_path)
    others, drawn_then = batch_of(then, tmp_path)
    assert not torch.equal(labels, others)
    assert not torch.equal(drawn, drawn_then)


def test_an_order_that_does_not_vary_is_the_same(tmp_path: Path) -> None:
    first, then = first_cell("[init]")
    assert not equal(weights(first, tmp_path), weights(then, tmp_path))
    labels, drawn = batch_of(first, tmp_path)
    others, drawn_then = batch_of(then, tmp_path)
    assert torch.equal(labels, others)
    assert torch.equal(drawn, drawn_then)


def test_the_order_is_the_same_for_networks_of_any_size(tmp_path: Path) -> None:
    cells = plan_of("[init]").cells
    drawn = {batch_of(cell.trials[1], tmp_path)[1].sum().item() for cell in cells}
    assert len(cells) > 1
    assert len(drawn) == 1


def test_a_seed_that_decides_the_split_holds_out_other_images() -> None:
    first, then = first_cell("[init, order, split]")
    assert first.hash != first_cell("[init, order]")[0].hash
    one, another = load(first.data), load(then.data)
    assert one.validation.shape == another.validation.shape
    assert not torch.equal(one.validation, another.validation)
    assert not torch.equal(one.train, another.train)
    assert torch.equal(one.test, another.test), "the test images are the same"


def test_what_varies_is_in_the_identity() -> None:
    hashes = {
        vary: first_cell(vary)[1].hash
        for vary in ("[init]", "[order]", "[split]", "[init, order]", "[order, split]")
    }
    assert len(set(hashes.values())) == len(hashes)
    assert first_cell("[init]")[0].hash != first_cell("[init, order]")[0].hash


@pytest.mark.parametrize("vary", ["[init]", "[order]"])
def test_a_trial_with_shared_sources_resumes_bit_for_bit(
    vary: str, tmp_path: Path
) -> None:
    trial = first_cell(vary)[1]
    whole = Training(trial, tmp_path / "whole")
    begun = Training(trial, tmp_path / "parts")
    begun.epoch()
    begun.save()
    begun.close()
    resumed = Training(trial, tmp_path / "parts")
    while not whole.finished:
        whole.epoch()
    while not resumed.finished:
        resumed.epoch()
    last, again = whole.epochs[-1].metrics, resumed.epochs[-1].metrics
    assert last == again
    whole.close()
    resumed.close()


def test_a_stored_space_keeps_what_varies() -> None:
    declared = space.load(TEXT.replace("VARY", "[order, split]"), "tiny.yaml")
    assert declared.seeds.vary == ("order", "split")
    data = to_data(declared)
    assert from_data(data, declared.document).seeds.vary == ("order", "split")
    del data["vary"]
    assert from_data(data, declared.document).seeds.vary == ("init", "order")


@pytest.mark.proof
def test_reports_say_what_does_not_vary(options: Options) -> None:
    text = TEXT.replace("VARY", "[order, split]").replace("count: 2", "count: 3")
    pipeline.run(space.load(text, "tiny.yaml"), "tiny.yaml", options)
    study = Study("tiny", options.url)
    said = (
        "the same initial weights for all seeds, another split of the training images"
    )
    assert said in study.table()
    assert said[1:] in render(study.effects_table(), "md")
    findings = {one.name: one for one in review("tiny", options.url)}
    assert "the same initial weights" in findings["noise left out"].text
    assert "order" not in findings["noise left out"].text


@pytest.mark.proof
def test_seeds_that_stand_for_something_else_are_another_declaration(
    options: Options,
) -> None:
    first = space.load(TEXT.replace("VARY", "[init, order]"), "tiny.yaml")
    pipeline.run(first, "tiny.yaml", options)
    second = replace(first, seeds=replace(first.seeds, vary=("order",)))
    pipeline.run(second, "tiny.yaml", options)
    found = [one.text for one in review("tiny", options.url)]
    assert any('vary: ["init", "order"] → ["order"]' in text for text in found)


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("[init, weights]", "'weights' is not allowed; allowed: init, order, split"),
        ("[init, init]", "seeds.vary: a duplicate in [init, init]"),
        ("[]", "seeds.vary: list should have at least 1 item"),
    ],
)
def test_a_wrong_source_is_refused(vary: str, said: str) -> None:
    with pytest.raises(SpaceError) as error:
        first_cell(vary)
    assert said in str(error.value)


def test_a_split_needs_images_that_are_left_out() -> None:
    text = TEXT.replace("VARY", "[split]").replace(HELD_OUT, "data: digits")
    with pytest.raises(SpaceError) as error:
        space.load(text, "tiny.yaml")
    assert "hold some out, as in data: {name: digits, validation: 0.1}" in str(
        error.value
    )


SPLIT = "{count: [SEEDS], vary: [init, order, split]}"


def test_selected_seeds_are_seen_whatever_they_decide(desk: Desk) -> None:
    data = "data: {name: digits, validation: 0.1}"
    text = with_seeds(SPLIT).replace("data: digits", data)
    fewer = text.replace("  layout: [serial, parallel]\n", "")
    desk.run(fewer.replace("SEEDS", "0, 1, 2, 3, 4, 5"))
    study = desk.run(text.replace("SEEDS", "1, 3, 4"), "selected")
    assert "seeds left out" in render(study.effects_table(), "md")
    assert "seeds left out" in names(study)


@pytest.mark.proof
def test_seeds_that_decide_something_else_are_not_left_out(desk: Desk) -> None:
    data = "data: {name: digits, validation: 0.1}"
    fewer = with_seeds("6").replace("  layout: [serial, parallel]\n", "")
    desk.run(fewer.replace("data: digits", data))
    text = with_seeds(SPLIT).replace("data: digits", data)
    study = desk.run(text.replace("SEEDS", "1, 3, 4"), "selected")
    assert "left out" not in render(study.effects_table(), "md")


def test_the_store_has_what_a_seed_decides(options: Options) -> None:
    text = TEXT.replace("VARY", "[order, split]")
    pipeline.run(space.load(text, "tiny.yaml"), "tiny.yaml", options)
    with sqlite3.connect(options.url) as connection:
        rows = connection.execute("SELECT seed, vary, data FROM trials").fetchall()
    connection.close()
    assert {vary for _, vary, _ in rows} == {'["order", "split"]'}
    assert {json.loads(data)["split"] - seed for seed, _, data in rows} == {1}


def test_a_wrong_number_of_seeds_is_named() -> None:
    text = TEXT.replace("{count: 2, vary: VARY}", "{count: {x: 1}}")
    with pytest.raises(SpaceError) as error:
        space.load(text, "tiny.yaml")
    assert "seeds.count: must be a valid integer" in str(error.value)
