"""A user's training function: results, resume, and what is said of its mistakes."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError, SpaceError
from ablate.own import registry
from ablate.pipeline import Hooks, Options
from ablate.records import Ended, Event, Progressed, Status
from ablate.results.html_report import write_report
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Killed, killing
from tests.own.conftest import Run, Use

# The network and its optimiser have state, and every epoch draws random numbers.
PARTS = """
import random
import numpy
import torch
import ablate
from torch import nn


def build(levels):
    hidden = nn.Linear(4, levels["width"])
    act = {"relu": nn.ReLU(), "tanh": nn.Tanh()}[levels["act"]]
    return nn.Sequential(hidden, act, nn.Linear(levels["width"], 1))


@ablate.trainer(
    factors={"act": ["relu", "tanh"], "width": ablate.Whole(1)},
    metrics=[
        ablate.Metric("mse", digits=4, margin=0.01, direction="min"),
        ablate.Metric("drawn", direction="max", compared=False),
    ],
    recipe=["lr"],
    model=build,
    inputs=lambda levels: torch.zeros(1, 4),
)
def fit(trial):
    net = trial.model()
    optimizer = torch.optim.Adam(net.parameters(), lr=trial.recipe["lr"])

    def save(path):
        torch.save([net.state_dict(), optimizer.state_dict()], path)

    def load(path):
        for part, state in zip((net, optimizer), torch.load(path)):
            part.load_state_dict(state)

    for epoch in trial.epochs(resume=load):
        for _ in range(5):
            x = torch.randn(16, 4)
            loss = (net(x) - x.square().sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        drawn = random.random() + numpy.random.rand()
        trial.report(mse=loss, drawn=drawn, save=save)
"""
SPACE = """
question: Does the activation matter?
trainer: fit
factors: {act: [relu, tanh]}
fixed: {width: 8}
seeds: 2
recipe: {epochs: 4, lr: 1e-2}
"""


def stopping_after(epochs: int) -> Hooks:
    """Hooks that ask the run to stop after so many epochs."""
    seen: list[int] = []

    def event(happened: Event) -> None:
        if isinstance(happened, Progressed):
            seen.extend(epoch.number for epoch in happened.epochs)

    return Hooks(event=event, stop=lambda: len(seen) >= epochs)


def stored(options: Options) -> list[object]:
    """Every number of the study that does not depend on the clock."""
    with Reader(options.url) as reader:
        statement = "SELECT * FROM epoch_metrics ORDER BY 1, 2, 3"
        return [reader.query(statement)[1], Study("own", options.url).table()]


def test_a_study_has_results_costs_and_verdicts(
    use: Use, run: Run, study: Study
) -> None:
    use(PARTS)
    assert run(SPACE).trained == 4
    assert run(SPACE).trained == 0
    table = study.table()
    assert "last epoch, as trainer fit reports it" in table
    assert " mse |" in table
    (cell, _) = study.results().cells
    assert cell.cost is not None
    assert (cell.cost.params, cell.cost.flops) == (8 * 5 + 9, 8 * 4 + 8)
    assert [effect.row for effect in study.effects()] == [1]
    frame = study.frame()
    assert {"act", "mse", "drawn", "params", "flops"} <= set(frame.columns)
    assert "top1" not in frame.columns


def test_the_seed_pairs_trials(use: Use, run: Run, options: Options) -> None:
    use(PARTS)
    run(SPACE)
    with Reader(options.url) as reader:
        _, rows = reader.query(
            "SELECT seed, COUNT(DISTINCT value) FROM metric_results WHERE metric ="
            " 'drawn' GROUP BY seed"
        )
    assert rows == [(0, 1), (1, 1)], "each seed draws the same in every row"


@pytest.mark.parametrize("epochs", range(1, 8))
def test_an_interrupted_study_ends_the_same(
    use: Use, run: Run, options: Options, tmp_path: Path, epochs: int
) -> None:
    use(PARTS)
    run(SPACE)
    expected = stored(options)
    other = Options(runs=tmp_path / "other", executor="inline", cpus=2)
    declared = space.load(SPACE, "own.yaml")
    outcome = pipeline.run(declared, "own.yaml", other, stopping_after(epochs))
    assert outcome.interrupted
    pipeline.run(declared, "own.yaml", other)
    assert stored(other) == expected
    with Reader(other.url) as reader:
        attempts = reader.query("SELECT SUM(first_epoch) FROM attempts")[1]
    assert attempts != [(0,)] or epochs == 4, "an attempt went on from a checkpoint"


@pytest.mark.parametrize("event", range(1, 12))
def test_a_killed_study_ends_the_same(
    use: Use,
    run: Run,
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    event: int,
) -> None:
    # A checkpoint after each epoch.
    monkeypatch.setattr("ablate.execution.trial_run.CHECKPOINT_SECONDS", 0)
    use(PARTS)
    run(SPACE)
    expected = stored(options)
    other = Options(runs=tmp_path / "other", executor="inline", cpus=2)
    declared = space.load(SPACE, "own.yaml")
    with pytest.raises(Killed):
        pipeline.run(declared, "own.yaml", other, killing(event))
    pipeline.run(declared, "own.yaml", other)
    assert stored(other) == expected


def test_without_save_a_trial_starts_again(
    use: Use, run: Run, options: Options, study: Study
) -> None:
    use(PARTS.replace(", save=save", ""))
    run(SPACE, stopping_after(2))
    assert run(SPACE).trained == 4
    with Reader(options.url) as reader:
        _, rows = reader.query("SELECT COUNT(*), MIN(epoch) FROM epoch_results")
        _, first = reader.query("SELECT MAX(first_epoch) FROM attempts")
    assert rows == [(16, 1)]
    assert first == [(0,)]


def test_a_class_trains_too(use: Use, run: Run, options: Options) -> None:
    head, _, body = PARTS.partition("def fit(trial):\n")
    assert body
    use(
        head
        + """
class fit:
    def __init__(self, trial):
        self.net = trial.model()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=trial.recipe["lr"])

    def epoch(self, number):
        x = torch.randn(16, 4)
        loss = self.net(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"mse": loss, "drawn": number}

    def save(self, path):
        path.mkdir()
        torch.save(self.net.state_dict(), path / "net.pt")
        (path / "empty").touch()
        torch.save(self.optimizer.state_dict(), path / "optimizer.pt")

    def load(self, path):
        self.net.load_state_dict(torch.load(path / "net.pt"))
        self.optimizer.load_state_dict(torch.load(path / "optimizer.pt"))
"""
    )
    run(SPACE)
    expected = stored(options)
    other = Options(runs=options.runs.parent / "other", executor="inline", cpus=2)
    declared = space.load(SPACE, "own.yaml")
    pipeline.run(declared, "own.yaml", other, stopping_after(2))
    pipeline.run(declared, "own.yaml", other)
    assert stored(other) == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("drawn=drawn, ", "", "declares the metrics mse, drawn; it reported mse"),
        ("drawn=drawn, ", "drawn=drawn, top1=1, ", "it reported mse, drawn, top1"),
        ("drawn=drawn, ", "drawn=torch.ones(3), ", "reported drawn = an array of (3,)"),
        ("drawn=drawn, ", "drawn='much', ", "reported drawn = 'much'; it must be"),
        ("        trial.report(", "        x = dict(", "returned after 0 of 4 epochs"),
        (
            "in trial.epochs(resume=load):",
            "in range(9):",
            "reported more than 4 epochs",
        ),
        ("loss.backward()", "loss.backwards()", "no attribute 'backwards'"),
        (
            "[net.state_dict(), optimizer.state_dict()], path",
            "[], str(path) + 'x'",
            "wrote nothing to the path",
        ),
        ("drawn = random", "raise SystemExit(3)\n        drawn = random", "SystemExit"),
    ],
)
def test_a_mistake_fails_the_trial(
    use: Use, run: Run, options: Options, old: str, new: str, message: str
) -> None:
    assert old in PARTS
    use(PARTS.replace(old, new))
    ended: list[Ended] = []

    def event(happened: Event) -> None:
        if isinstance(happened, Ended):
            ended.append(happened)

    outcome = run(SPACE, Hooks(event=event))
    # Equal failures before any metric end the run.
    assert outcome.failed == (2 if outcome.gave_up else 4)
    assert all(message in one.error for one in ended)
    # Corrected, the study goes on.
    use(PARTS)
    assert run(SPACE).trained == 4


def test_a_metric_that_is_not_finite_diverges(
    use: Use, run: Run, options: Options
) -> None:
    use(PARTS.replace("mse=loss,", "mse=loss / (epoch < 3),"))
    outcome = run(SPACE)
    with Reader(options.url) as reader:
        _, rows = reader.query("SELECT status, COUNT(*) FROM trials GROUP BY 1")
        _, errors = reader.query("SELECT DISTINCT error FROM attempts")
    assert rows == [("diverged", 4)]
    assert errors == [("mse is inf after epoch 3",)]
    assert outcome.failed == 0


def test_a_change_of_the_file_trains_again(use: Use, run: Run) -> None:
    use(PARTS)
    assert run(SPACE).trained == 4
    use(f"{PARTS}\nCONSTANT = 3\n")
    assert run(SPACE).trained == 4
    use(PARTS)
    assert run(SPACE).trained == 0, "what was known stays known"


def test_a_change_under_a_revision_does_not(use: Use, run: Run) -> None:
    declared = PARTS.replace('recipe=["lr"],', 'recipe=["lr"], revision="a",')
    use(declared)
    assert run(SPACE).trained == 4
    use(f"{declared}\n# A comment.\n")
    assert run(SPACE).trained == 0
    use(declared.replace('revision="a"', 'revision="b"'))
    assert run(SPACE).trained == 4


@pytest.mark.proof
def test_a_study_is_read_without_its_file(
    use: Use, run: Run, study: Study, tmp_path: Path
) -> None:
    file = use(PARTS)
    run(SPACE)
    file.unlink()
    table, effects = study.table(), study.effects_table().data
    registry.clear()
    assert (study.table(), study.effects_table().data) == (table, effects)
    write_report(study, tmp_path / "report.html")
    assert "as trainer fit reports it" in (tmp_path / "report.html").read_text()


def test_parameters_alone_are_counted_without_inputs(
    use: Use, run: Run, study: Study
) -> None:
    use(PARTS.replace("    inputs=lambda levels: torch.zeros(1, 4),\n", ""))
    run(SPACE)
    (cell, _) = study.results().cells
    assert cell.cost is not None
    assert (cell.cost.params, cell.cost.flops) == (49, 0)
    with Reader(study.store) as reader:
        _, rows = reader.query("SELECT DISTINCT params, flops FROM trial_results")
    assert rows == [(49, None)], "what was not counted is no zero"
    assert "params (K)" in study.table()
    assert "FLOPs" not in study.table()
    with pytest.raises(AblateError, match="flops were not counted"):
        study.pareto(["mse=min", "flops=min"])


def test_a_search_proposes_levels_of_a_trainer(use: Use, run: Run) -> None:
    use(PARTS)
    text = SPACE.replace("fixed: {width: 8}", "strategy: {name: tpe, cells: 5}")
    text = text.replace("{act: [relu, tanh]}", "{act: [relu, tanh], width: [2, 4, 8]}")
    assert run(text).trials == 10


def test_a_scheduler_stops_trials_of_a_trainer(
    use: Use, run: Run, options: Options
) -> None:
    use(PARTS)
    text = SPACE.replace("[relu, tanh]", "[relu, tanh]}\nscheduler: {name: asha")
    text = text.replace(
        "scheduler: {name: asha}", "scheduler: {name: asha, reduction: 2}"
    )
    run(text.replace("seeds: 2", "seeds: 4"))
    with Reader(options.url) as reader:
        _, rows = reader.query("SELECT DISTINCT status FROM trials ORDER BY 1")
    assert rows == [(Status.COMPLETED,), (Status.PRUNED,)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "trainer: fit",
            "trainer: fitt",
            "unknown trainer 'fitt'; did you mean 'fit'?",
        ),
        ("[relu, tanh]", "[relu, tahn]", "'tahn' is not a level; allowed: relu, tanh"),
        ("{act:", "{atc:", "unknown factor 'atc'; did you mean 'act'?"),
        ("width: 8", "width: 0", "allowed: whole numbers from 1"),
        ("fixed: {width: 8}\n", "", "width has no default in trainer fit"),
        ("lr: 1e-2", "batch_size: 8", "does not read recipe.batch_size"),
        ("{epochs: 4, lr: 1e-2}", "cifar", "write the fields that trainer fit reads"),
        ("seeds: 2", "seeds: 2\ndata: digits", "data is read by built-in training"),
        (
            "seeds: 2",
            "seeds: 2\nbackbone: vit",
            "backbone is read by built-in training",
        ),
        ("seeds: 2", "seeds: 2\ndiagnostics: true", "diagnostics is read by built-in"),
        ("seeds: 2", "seeds: 2\nmetric: {top1: max}", "must be one of mse, as in"),
        ("seeds: 2", "seeds: 2\nmetric: {drawn: max}", "must be one of mse, as in"),
        (
            "seeds: 2",
            "seeds: 2\nmetric: {mse: max}",
            "mse is better when it is smaller",
        ),
        ("seeds: 2", "seeds: 2\nresources: {processes: 2}", "runs in one process"),
        ("seeds: 2", "seeds: {vary: [init]}", "decides itself what a seed stands for"),
        ("{act: [relu, tanh]}", "{recipe.flip: [0, 0.5]}", "does not read recipe.flip"),
    ],
)
def test_a_mistake_in_a_space_is_reported_with_its_line(
    use: Use, old: str, new: str, message: str
) -> None:
    use(PARTS)
    assert old in SPACE
    with pytest.raises(SpaceError) as told:
        space.load(SPACE.replace(old, new), "own.yaml")
    assert message in str(told.value)
    assert str(told.value).count("\n") <= 1
    assert "own.yaml:" in str(told.value)


def test_limits_need_a_model(use: Use) -> None:
    start = PARTS.index("    model=build")
    end = PARTS.index(")\ndef fit")
    use(PARTS[:start] + PARTS[end:])
    with pytest.raises(
        SpaceError, match="limits are about costs, and trainer fit gives"
    ):
        space.load(f"{SPACE}limits: ['params <= 100']\n", "own.yaml")


def test_levels_of_the_recipe_vary(use: Use, run: Run, study: Study) -> None:
    use(PARTS)
    text = SPACE.replace("{act: [relu, tanh]}", "{recipe.lr: [1e-2, 1e-3]}")
    assert run(text.replace(", lr: 1e-2", "")).trained == 4
    assert len({tuple(cell.values.values()) for cell in study.results().cells}) == 2


def test_events_name_each_epoch_once(use: Use, run: Run) -> None:
    use(PARTS)
    numbers: list[int] = []

    def event(happened: Event) -> None:
        if isinstance(happened, Progressed):
            numbers.extend(epoch.number for epoch in happened.epochs)

    run(SPACE, Hooks(event=event))
    assert numbers == list(itertools.chain.from_iterable([range(1, 5)] * 4))


def test_fields_that_built_in_training_would_not_read_count(
    use: Use, run: Run, study: Study
) -> None:
    """The momentum is one of SGD there; here the function reads it."""
    use(
        PARTS.replace('recipe=["lr"]', 'recipe=["lr", "momentum"]').replace(
            "mse=loss,", 'mse=loss + trial.recipe["momentum"],'
        )
    )
    text = SPACE.replace("{act: [relu, tanh]}", "{recipe.momentum: [0.5, 0.9]}")
    assert run(text).trained == 4
    first, second = (cell.values for cell in study.results().cells)
    assert second == pytest.approx({seed: first[seed] + 0.4 for seed in first})
    fixed = SPACE.replace("lr: 1e-2", "lr: 1e-2, momentum: 0.7")
    assert run(fixed).trained == 4
    assert run(fixed.replace("0.7", "0.8")).trained == 4


def test_a_function_that_catches_everything_stops_too(
    use: Use, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.own_function.STOP_SECONDS", 60.0)
    use(
        """
import ablate

@ablate.trainer(metrics={"a": "max"}, factors={"act": [1, 2]})
def fit(trial):
    for _ in trial.epochs():
        try:
            trial.report(a=trial.seed)
        except:
            pass
"""
    )
    text = SPACE.replace("[relu, tanh]", "[1, 2]").replace("fixed: {width: 8}\n", "")
    began = time.monotonic()
    run(text.replace(", lr: 1e-2", ""), stopping_after(1))
    assert time.monotonic() - began < 20


def test_prints_of_a_training_are_no_results(
    use: Use, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    use(
        PARTS.replace(
            "    net = trial.model()", "    print('hello')\n    net = trial.model()"
        )
    )
    run(SPACE)
    out, err = capsys.readouterr()
    assert "hello" not in out
    assert "hello" in err


def test_a_save_that_fails_while_stopping_fails_its_trial_only(
    use: Use, run: Run
) -> None:
    use(PARTS.replace("    def save(path):\n", "    def save(path):\n        1 / 0\n"))
    outcome = run(SPACE, stopping_after(1))
    assert outcome.failed == 1
