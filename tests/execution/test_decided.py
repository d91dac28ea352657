"""Seeds until something can be said: who gets how many, killed at any event or not, and
from the command line.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.verdicts import Verdict
from ablate.results.study import Study
from tests.conftest import TINY, Killed, RunText, killing

UNTIL = TINY.replace("seeds: 2", "seeds: {until_decided: 9}")


def curve(trial: Trial, number: int) -> Epoch:
    """One shortcut helps by 2 points, the layout does next to nothing; noise of 0.4."""
    helps = 2.0 if trial.architecture.settings.get("shortcuts.count") else 0.0
    top1 = (
        70
        + helps
        + random.Random(f"seed {trial.seed}").gauss(0, 1)
        + random.Random(trial.hash).gauss(0, 0.4)
    )
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
        lr=1e-3,
        seconds=1.0,
    )


def counts(options: Options) -> list[int]:
    return [len(cell.statuses) for cell in Study("tiny", options.url).results().cells]


@pytest.mark.proof
def test_decided_cells_get_no_further_seed(run_text: RunText, options: Options) -> None:
    outcome = run_text(UNTIL, SimulatedExecutor(curve))
    found = Study("tiny", options.url).effects()
    assert counts(options)[0] == max(counts(options)), (
        "the reference has the seeds of every cell"
    )
    assert set(counts(options)) <= {3, 6, 9}
    for effect in found:
        undecided = effect.verdict is Verdict.INCONCLUSIVE
        assert effect.is_given_up == (undecided and len(effect.seeds) < 9)
    assert any(effect.is_given_up for effect in found)
    assert any(effect.verdict is Verdict.HELPS for effect in found)
    assert outcome.trained == sum(counts(options))
    again = run_text(UNTIL, SimulatedExecutor(curve))
    assert (again.trained, again.known_before) == (0, outcome.trained)


def test_killed_at_any_event_it_ends_the_same(
    run_text: RunText, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> None:
    undisturbed = Options(runs=tmp_path_factory.mktemp("undisturbed"), cpus=2)
    declared = space.load(UNTIL, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", undisturbed, executor=SimulatedExecutor(curve))
    for at in range(7, 120, 16):
        try:
            run_text(UNTIL, SimulatedExecutor(curve), killing(at))
        except Killed:
            continue
        break
    run_text(UNTIL, SimulatedExecutor(curve))
    assert Study("tiny", options.url).table("json") == Study(
        "tiny", undisturbed.url
    ).table("json")


def test_a_failed_trial_does_not_hold_the_others_up(
    run_text: RunText, options: Options
) -> None:
    def failing(trial: Trial, number: int) -> Epoch:
        if trial.seed == 1 and trial.architecture.settings.get("layout") == "parallel":
            raise RuntimeError("out of luck")
        return curve(trial, number)

    outcome = run_text(UNTIL, SimulatedExecutor(failing))
    assert outcome.failed == 2
    assert not outcome.interrupted
    # Rows with a failed trial wait; the others get as many seeds as they need.
    assert counts(options) == [6, 3, 6, 3]
    assert run_text(UNTIL, SimulatedExecutor(curve)).failed == 0
    assert all(
        set(cell.values) == set(cell.statuses)
        for cell in Study("tiny", options.url).results().cells
    )


def test_the_option_is_the_key(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    by_option = space.until_decided(space.read(file), 9)
    by_key = space.load(UNTIL.replace("9}", "9, start: 2}"), "tiny.yaml")
    assert by_option.seeds == by_key.seeds


def test_the_option_changes_the_space_and_outlives_a_resume(options: Options) -> None:
    """The YAML text is stored as it is; `resume` adds seeds as the run before did."""
    fixed = space.load(TINY.replace("seeds: 2", "seeds: 3"), "tiny.yaml")
    declared = space.until_decided(fixed, 9)
    stopping = pipeline.Hooks(stop=lambda: True)
    executor = SimulatedExecutor(curve)
    pipeline.run(declared, "tiny.yaml", options, stopping, executor)
    study = Study("tiny", options.url)
    assert study.declared() == declared
    assert study.declared().document == fixed.document
    pipeline.resume("tiny", options, executor=SimulatedExecutor(curve))
    assert set(counts(options)) <= {3, 6, 9} and max(counts(options)) > 3
    # The same file without the option goes on as it was.
    before = counts(options)
    pipeline.run(fixed, "tiny.yaml", options, executor=SimulatedExecutor(curve))
    assert counts(options) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds: 2", "seeds: [3, 5]"), "until_decided 9 adds seeds 0, 1, 2, ..."),
        (("seeds: 2", "seeds: 9"), "must be above 9, the number of seeds at the start"),
        (("design: grid", "strategy: {name: random, cells: 3}"), "is a search"),
        (("seeds: 2", "seeds: 2\nscheduler: asha"), "leave the scheduler out"),
    ],
)
def test_what_cannot_be_decided_so_is_refused(
    change: tuple[str, str], message: str
) -> None:
    declared = space.load(TINY.replace(*change), "tiny.yaml")
    with pytest.raises(AblateError) as raised:
        space.until_decided(declared, 9)
    assert message in str(raised.value)


WITH_BASELINE = UNTIL.replace("until_decided: 9", "until_decided: 9, baseline: 7")


@pytest.mark.proof
def test_row_0_begins_with_its_own_number_of_seeds(
    run_text: RunText, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_text(WITH_BASELINE, SimulatedExecutor(curve))
    assert counts(options)[0] in (7, 9)
    assert set(counts(options)[1:]) <= {3, 6, 9}
    study = Study("tiny", options.url)
    assert study.results().baseline_seeds == 7
    # Row 0 had seven seeds when a row with three was decided or given up.
    for effect in study.effects():
        assert len(effect.seeds) + effect.extra == max(7, len(effect.seeds))
    killed = Options(runs=tmp_path_factory.mktemp("killed"), cpus=2)
    declared = space.load(WITH_BASELINE, "tiny.yaml")
    for at in range(7, 200, 23):
        try:
            pipeline.run(
                declared, "tiny.yaml", killed, killing(at), SimulatedExecutor(curve)
            )
        except Killed:
            continue
        break
    pipeline.run(declared, "tiny.yaml", killed, executor=SimulatedExecutor(curve))
    assert study.table("json") == Study("tiny", killed.url).table("json")


@pytest.mark.proof
def test_rows_that_can_never_be_tested_get_no_further_seeds(
    run_text: RunText, options: Options
) -> None:
    """The layout makes no difference, so the rows after it are not tested."""
    text = UNTIL.replace("{until_decided: 9}", "{until_decided: 60, step: 9}")
    run_text(f"{text}\nprimary: [1]\n", SimulatedExecutor(curve))
    first, *others = Study("tiny", options.url).effects()
    assert first.primary and first.verdict is Verdict.SAME
    assert {len(effect.seeds) for effect in others} == {len(first.seeds)}
    assert len(first.seeds) < 60


def test_a_study_that_gave_no_row_up_keeps_its_seeds(
    run_text: RunText, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores of before have rows that would get fewer seeds today."""
    with monkeypatch.context() as before:
        before.setattr("ablate.report.effect.LEAST_CHANCE", 0.0)
        run_text(UNTIL, SimulatedExecutor(curve))
    seeds, table = counts(options), Study("tiny", options.url).table("json")
    assert max(seeds) == 9
    outcome = run_text(UNTIL, SimulatedExecutor(curve))
    assert outcome.trained == 0
    assert counts(options) == seeds
    assert Study("tiny", options.url).table("json") == table
    assert (
        pipeline.resume("tiny", options, executor=SimulatedExecutor(curve)).trained == 0
    )
    assert counts(options) == seeds
