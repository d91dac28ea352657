"""The whole flow on the simulated executor: nothing twice, nothing lost, equal tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate import pipeline, space
from ablate.errors import AblateError, StoreError
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.pipeline import Hooks, Options, Outcome
from ablate.records import Ended, Epoch, Event, Resources, Started, Status, Trial
from ablate.results.study import Study
from ablate.scheduling.preview import trials_at_once
from ablate.store.reader import Reader
from tests.conftest import TINY, RunText


def test_the_same_space_again_trains_nothing(
    run_text: RunText, tiny: str, table: Callable[[], str]
) -> None:
    first = run_text(tiny)
    assert (
        first.trials,
        first.known_before,
        first.trained,
        first.failed,
        first.unfinished,
    ) == (8, 0, 8, 0, 0)
    before = table()
    second = run_text(tiny)
    assert (second.known_before, second.trained) == (8, 0)
    assert table() == before


def test_a_new_level_or_seed_trains_only_what_is_new(
    run_text: RunText, tiny: str
) -> None:
    run_text(tiny)
    assert run_text(tiny.replace("[0, 1]", "[0, 1, 2]")).trained == 4
    assert (
        run_text(
            tiny.replace("[0, 1]", "[0, 1, 2]").replace("seeds: 2", "seeds: 3")
        ).trained
        == 6
    )
    assert run_text(tiny).trained == 0


def test_another_study_that_asks_for_the_same_trial_gets_it(
    run_text: RunText, tiny: str, options: Options
) -> None:
    run_text(tiny)
    other = space.load(
        tiny.replace("design: grid", "design: one-at-a-time"), "other.yaml"
    )
    outcome = pipeline.run(other, "other.yaml", options, executor=SimulatedExecutor())
    assert (outcome.trials, outcome.trained) == (6, 0)


def test_a_reordered_file_trains_nothing(run_text: RunText, tiny: str) -> None:
    run_text(tiny)
    lines = tiny.strip().splitlines()
    swapped = "\n".join(
        [
            *lines[:3],
            lines[4],
            lines[3].replace("[0, 1]", "[0, 1.0]".replace("1.0", "1")),
            *lines[5:],
        ]
    )
    assert run_text(swapped).trained == 0


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.proof
@given(kills=st.lists(st.integers(1, 40), max_size=6))
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_killed_whenever_the_end_is_the_same(
    kills: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The driver dies at any event, again and again; the resumed study has one result a
    trial and the undisturbed table.
    """
    options = Options(runs=tmp_path_factory.mktemp("runs"), cpus=2)
    declared = space.load(TINY, "tiny.yaml")

    def run(at: int | None) -> Outcome:
        seen = 0

        def event(happened: Event) -> None:
            nonlocal seen
            seen += 1
            if at is not None and seen == at:
                raise Killed

        return pipeline.run(
            declared, "tiny.yaml", options, Hooks(event=event), SimulatedExecutor()
        )

    for at in kills:
        try:
            run(at)
        except Killed:
            continue
    assert run(None).unfinished == 0
    undisturbed = Options(runs=tmp_path_factory.mktemp("undisturbed"), cpus=2)
    pipeline.run(declared, "tiny.yaml", undisturbed, executor=SimulatedExecutor())
    assert Study("tiny", options.url).table() == Study("tiny", undisturbed.url).table()
    with Reader(options.url) as reader:
        completed = reader.query(
            "SELECT trial_hash, COUNT(*) FROM attempts WHERE status = 'completed' GROUP"
            " BY trial_hash"
        )[1]
    assert sorted(count for _, count in completed) == [1] * 8


def test_interruption_is_reported_and_resumed(
    run_text: RunText, tiny: str, options: Options
) -> None:
    events: list[Event] = []
    outcome = run_text(
        tiny, hooks=Hooks(event=events.append, stop=lambda: len(events) > 6)
    )
    assert outcome.interrupted
    assert 0 < outcome.unfinished < 8
    with Reader(options.url) as reader:
        assert reader.studies.get("tiny").unfinished == outcome.unfinished
        assert "interrupted" in {
            row.status
            for trial in events
            for row in reader.trials.attempts(trial.trial)
        }
    finished = pipeline.resume(None, options, executor=SimulatedExecutor())
    assert finished.unfinished == 0
    assert finished.trained == outcome.unfinished


def test_resume_needs_no_file(run_text: RunText, tiny: str, options: Options) -> None:
    run_text(tiny, hooks=Hooks(stop=lambda: True))
    assert (
        pipeline.resume("tiny", options, executor=SimulatedExecutor()).unfinished == 0
    )


def test_resume_without_a_study(options: Options) -> None:
    with pytest.raises(StoreError, match="no store at"):
        pipeline.resume(None, options)


def test_failed_trials_are_tried_again_and_diverged_ones_are_not(
    run_text: RunText, tiny: str, table: Callable[[], str]
) -> None:
    def curve(trial: Trial, number: int) -> Epoch:
        if trial.seed == 1 and "layout" in trial.architecture.settings:
            raise RuntimeError("out of memory")
        if trial.seed == 0 and "shortcuts.count" in trial.architecture.settings:
            return Epoch(
                number=number,
                metrics={
                    "train_loss": float("nan"),
                    "loss": float("nan"),
                    "top1": 0,
                    "top5": 0,
                },
                lr=0,
                seconds=0,
            )
        return made_up(trial, number)

    outcome = run_text(tiny, SimulatedExecutor(curve))
    assert outcome.failed == 2
    shown = table()
    assert "1 failed" in shown
    assert "1 diverged" in shown
    again = run_text(tiny)
    assert again.trained == 2, "the failed ones"
    assert "1 diverged" in table()


def test_only_completed_trials_enter_a_mean(
    run_text: RunText, tiny: str, options: Options
) -> None:
    def curve(trial: Trial, number: int) -> Epoch:
        return Epoch(
            number=number,
            metrics={
                "train_loss": 1.0,
                "loss": float("nan") if trial.seed == 1 else 1.0,
                "top1": 80.0,
                "top5": 90.0,
            },
            lr=0.1,
            seconds=1.0,
        )

    run_text(tiny, SimulatedExecutor(curve))
    cells = Study("tiny", options.url).results().cells
    assert all(
        cell.values == {0: 80.0} and cell.statuses[1] == Status.DIVERGED
        for cell in cells
    )


def test_nothing_trainable_is_an_error_with_the_reasons(
    run_text: RunText, tiny: str
) -> None:
    with pytest.raises(AblateError, match="row 0: size.heads = 3 does not divide"):
        run_text(tiny.replace("heads: 2", "heads: 3"))


@pytest.mark.parametrize(
    ("cpus", "gpus", "slots"),
    [(1, 0, 16), (2, 0, 8), (1, 1, 4), (1, 0.5, 8), (1, 0.6, 4), (1, 2, 2), (8, 1, 2)],
)
def test_a_preview_counts_cores_and_gpus(cpus: float, gpus: float, slots: int) -> None:
    machine = Options(cpus=16, gpus=4)
    wanted = Resources(cpus=cpus, gpus=gpus)
    assert trials_at_once(wanted, machine) == slots


def test_a_preview_trains_nothing_and_estimates(
    tiny: str, options: Options, run_text: RunText
) -> None:
    declared = space.load(tiny, "tiny.yaml")
    shown = pipeline.preview(declared, options.url, options)
    assert not Path(options.url).exists()
    assert len(shown.to_train) == 8
    assert shown.seconds is not None
    assert shown.seconds > 0
    run_text(tiny)
    assert pipeline.preview(declared, options.url, options).seconds == 0
    more = pipeline.preview(
        space.load(tiny.replace("seeds: 2", "seeds: 4"), "tiny.yaml"),
        options.url,
        options,
    )
    assert len(more.to_train) == 8
    assert more.seconds == pytest.approx(8 * 3 / 2, rel=0.3), (
        "measured: one second an epoch, two at once"
    )


def test_a_second_driver_is_refused_and_loses_nothing(
    run_text: RunText, tiny: str, options: Options
) -> None:
    def second(happened: Event) -> None:
        if isinstance(happened, Started):
            with pytest.raises(StoreError, match="is writing to"):
                pipeline.run(
                    space.load(tiny, "tiny.yaml"),
                    "tiny.yaml",
                    options,
                    executor=SimulatedExecutor(),
                )

    assert run_text(tiny, hooks=Hooks(event=second)).unfinished == 0


def test_a_store_that_fails_stops_the_run(
    run_text: RunText, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ablate.store.writer import Writer

    original = Writer.write

    def full(self: Writer, happened: Event) -> None:
        if isinstance(happened, Ended):
            raise OSError(28, "No space left on device")
        original(self, happened)

    monkeypatch.setattr(Writer, "write", full)
    with pytest.raises(OSError, match="No space left"):
        run_text(tiny)
    monkeypatch.undo()
    assert run_text(tiny).unfinished == 0


def test_importing_ablate_loads_nothing_heavy() -> None:
    heavy = "torch timm ray pandas sqlalchemy pydantic sklearn rich yaml"
    code = (
        f"import sys, ablate, ablate.cli.app; print([m for m in '{heavy}'.split() if m"
        " in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_python_interface(tmp_path: Path) -> None:
    import torch

    import ablate

    declared = {
        "name": "api",
        "question": "q",
        "backbone": {
            "family": "vit",
            "patch_size": 4,
            "width": 16,
            "depth": 1,
            "heads": 2,
        },
        "factors": {"layout": ["serial", "parallel"]},
        "seeds": 1,
        "data": {"name": "digits", "train_images": 100, "test_images": 50},
        "recipe": {"epochs": 1, "warmup_epochs": 0},
    }
    assert len(ablate.preview(declared, runs=tmp_path).to_train) == 2
    study = ablate.run(declared, runs=tmp_path, executor="inline")
    assert study.frame().shape[0] == 2
    assert ablate.open_study("api", runs=tmp_path).table("json") == study.table("json")
    model = ablate.create_model(
        "deit_tiny_patch16_224", {"shortcuts.count": 2}, image_size=32, classes=10
    )
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert ablate.model_cost("deit_tiny_patch16_224").params == 5_717_416
    with pytest.raises(AblateError, match="would change nothing"):
        ablate.create_model("deit_tiny_patch16_224", {"shortcuts.b": 2})
    with pytest.raises(AttributeError):
        _ = ablate.nothing


def test_results_of_a_deleted_store_do_not_come_back_from_checkpoints(
    run_text: RunText, tiny: str, options: Options
) -> None:
    from ablate.execution import make

    def count(text: str) -> int:
        events: list[Event] = []
        run_text(text, make("inline"), Hooks(event=events.append))
        return max(event.epoch for event in events if isinstance(event, Started))

    one = tiny.replace("seeds: 2", "seeds: 1")
    assert count(one) == 0
    for file in Path(options.url).parent.glob("ablate.db*"):
        file.unlink()
    assert count(one) == 0, "trained again, from the first epoch"
