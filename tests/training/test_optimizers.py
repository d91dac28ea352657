"""Optimizers and schedules of timm, by its names."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.optim import list_optimizers
from torch import nn

from ablate import space
from ablate.errors import SpaceError
from ablate.learning.optimizers import make_schedule, refusal
from ablate.plan.plan import make_plan
from ablate.records import SCHEDULES, Cost, Recipe
from ablate.records.options import canonical_options, options_text, parse_options
from tests.training.test_training import RECIPE, train, trial

# Those that need a GPU and a package of their own, and one that needs the Hessian.
ELSEWHERE = ("bnb", "fused", "adahessian")
HERE = [name for name in list_optimizers() if not name.startswith(ELSEWHERE)]
WRAPPED = ["lookahead_adamw", "lookahead_sgd", "lookahead_radam"]
OPTIONS = {
    "linear": "",
    "poly": "decay_rate=2.0",
    "step": "decay_epochs=2 decay_rate=0.5",
    "multistep": "decay_milestones=[1,3]",
    "wsd": "decay_epochs=2",
}
TEXT = """
question: q
backbone: {family: vit, patch_size: 4, width: 32, depth: 2, heads: 2}
factors: {layout: [serial, parallel]}
seeds: 1
"""


def test_nearly_all_optimizers_of_timm_are_here() -> None:
    assert len(HERE) > 80


@pytest.mark.proof
@pytest.mark.parametrize("name", [*HERE, *WRAPPED])
@pytest.mark.filterwarnings("ignore")
def test_each_optimizer_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    recipe = replace(RECIPE, optimizer=name, epochs=2, schedule="wsd", lr=1e-4)
    assert refusal(recipe) == ""
    straight, weights = train(trial(recipe), tmp_path / "straight")
    resumed, others = train(trial(recipe), tmp_path / "resumed", (1,))
    assert resumed == straight
    assert all(torch.equal(weights[key], others[key]) for key in weights)
    assert all(tensor.isfinite().all() for tensor in weights.values())


@pytest.mark.parametrize("name", sorted(set(list_optimizers()) - set(HERE)))
def test_an_optimizer_that_cannot_work_here_is_refused(name: str) -> None:
    reason = refusal(Recipe(optimizer=name))
    assert "second derivatives" in reason or "cannot be loaded here" in reason


def rates(recipe: Recipe, updates: int, begin: int = 0) -> list[float]:
    """The rate of each update of a training that goes on after `begin` updates."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.rate)
    schedule = make_schedule(recipe, optimizer, updates)
    if begin:
        schedule.step_update(begin)
    seen = []
    for update in range(begin, updates * recipe.epochs):
        seen.append(optimizer.param_groups[0]["lr"])
        schedule.step_update(update + 1)
    return seen


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_depends_on_the_number_of_the_update_alone(name: str) -> None:
    recipe = Recipe(
        schedule=name,
        schedule_options=OPTIONS.get(name, ""),
        epochs=6,
        warmup_epochs=1,
        lr=0.1,
        min_lr=0.001,
    )
    assert refusal(recipe) == ""
    straight = rates(recipe, 5)
    assert rates(recipe, 5, begin=12) == straight[12:]
    assert straight[0] < straight[4], "warm-up"
    if recipe.extends:
        assert rates(replace(recipe, epochs=8), 5)[: len(straight)] == straight


def test_schedules_have_the_shapes_of_their_names() -> None:
    recipe = Recipe(epochs=4, lr=1.0)
    linear = rates(replace(recipe, schedule="linear"), 5)
    assert linear == pytest.approx([1 - number / 20 for number in range(20)])
    step = replace(
        recipe, schedule="step", schedule_options="decay_epochs=2 decay_rate=0.5"
    )
    assert rates(step, 5) == pytest.approx([1.0] * 10 + [0.5] * 10)
    several = replace(
        recipe, schedule="multistep", schedule_options="decay_milestones=[1,3]"
    )
    # timm falls one update before the epoch begins.
    assert rates(several, 5) == pytest.approx([1.0] * 4 + [0.1] * 10 + [0.01] * 6)
    square = replace(recipe, schedule="poly", schedule_options="decay_rate=2.0")
    assert rates(square, 5) == pytest.approx([x * x for x in linear])
    stable = rates(replace(recipe, schedule="wsd"), 5)
    assert stable[:16] == pytest.approx([1.0] * 16)
    assert stable[18] == pytest.approx(1 - math.sqrt(0.5))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("optimizer: lionn", "unknown optimizer 'lionn'; did you mean 'lion'"),
        ("optimizer: adahessian", "second derivatives"),
        ("optimizer: lion, optimizer_options: {foo: 1}", "unknown option of optimizer"),
        ("optimizer: lion, optimizer_options: {lr: 1}", r"write recipe\.lr instead"),
        ("optimizer_options: {betas: [0.9, 0.9]}", r"write recipe\.beta1 and"),
        (
            "optimizer: sgd, optimizer_options: {momentum: 0}",
            r"write recipe\.momentum instead",
        ),
        ("optimizer_options: nonsense", "'nonsense' is not NAME=VALUE"),
        ("optimizer_options: a=1 a=2", "'a' is given twice"),
        ("optimizer: lion, optimizer_options: {betas: 3}", "lion makes no step"),
        ("optimizer: lion, optimizer_options: {betas: {a: 1}}", "a word or a list"),
        ("optimizer: lion, momentum: 0.5", "not read unless optimizer is sgd"),
        ("schedule: step", r"needs decay_epochs, as in schedule_options: \{decay"),
        ("schedule: poly", "needs decay_rate"),
        ("schedule: stepp", "did you mean 'step'"),
        ("schedule: cosine, schedule_options: {decay_rate: 2}", "unknown option of"),
        ("schedule: linear, schedule_options: {decay_rate: 2}", "has no option"),
        ("epochs: 5, schedule: wsd, schedule_options: {decay_epochs: 9}", "cannot be"),
        (
            "schedule: constant, min_lr: 1e-5",
            "not read unless schedule is cosine, linear",
        ),
    ],
)
def test_a_plan_refuses_what_would_fail_in_every_trial(recipe: str, words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        space.load(f"{TEXT}recipe: {{{recipe}}}\n", "tiny.yaml")


def test_options_vary_and_equal_ones_are_one_trial() -> None:
    text = TEXT.replace(
        "factors: {layout: [serial, parallel]}",
        "factors:\n"
        "  recipe.optimizer_options: ['', caution=true, 'caution=True']\n"
        "design: grid",
    )
    plan = make_plan(
        space.load(f"{text}recipe: {{optimizer: lion}}\n", "tiny.yaml"),
        lambda _: Cost(1, 1, 1, 1, 1),
    )
    assert [cell.same_as for cell in plan.cells] == [None, None, 1]
    mapped = space.load(
        f"{TEXT}recipe: {{optimizer: adan, optimizer_options: {{no_prox: true,"
        " betas: [0.98, 0.92, 0.99]}}\n",
        "tiny.yaml",
    )
    assert mapped.recipe.optimizer_options == "betas=[0.98,0.92,0.99] no_prox=true"


def test_a_level_that_is_no_optimizer_is_named_with_its_line() -> None:
    text = TEXT.replace("layout: [serial, parallel]", "recipe.optimizer: [adamw, lino]")
    with pytest.raises(SpaceError, match=r"tiny.yaml:4: .*'lino'; did you mean 'lion'"):
        space.load(text, "tiny.yaml")


NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
ONE = st.one_of(
    st.booleans(),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.from_regex(r"[a-z][a-z0-9-]{0,6}", fullmatch=True).filter(
        lambda word: word not in ("true", "false", "null")
    ),
)


@given(
    st.dictionaries(
        NAMES,
        st.one_of(
            ONE, st.lists(ONE.filter(lambda x: not isinstance(x, str))).map(tuple)
        ),
    )
)
def test_a_text_of_options_is_read_as_it_was_written(
    options: dict[str, object],
) -> None:
    text = options_text(options)
    assert parse_options(text) == options
    assert canonical_options(text) == text
