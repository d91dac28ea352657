"""Trains one trial in this process, to look at it: with a debugger or a profiler.

Nothing is stored, and no other trial can tell that it was trained.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ablate.errors import AblateError, ExecutorError
from ablate.execution.counting import count_here
from ablate.execution.trial_run import device_of
from ablate.parts import checkout_of
from ablate.pipeline import Options, cost_plan
from ablate.plan.cells import why_infeasible
from ablate.records import Epoch, Space, Trial

# Steps of an optimizer that a profile leaves out, and steps that it shows: the first
# ones are slower than the rest.
SKIPPED_STEPS = 2
PROFILED_STEPS = 8
# Lines of the table of operators.
LINES = 15


def find_trial(space: Space, options: Options, row: int, seed: int | None) -> Trial:
    """Returns the trial of a row and a seed as a run would train it.

    Args:
        seed: None: the first one of the space.

    Raises:
        AblateError: there is no such row or seed, or the row is not trained.
    """
    cells = cost_plan(space, options.url).cells
    if not 0 <= row < len(cells):
        raise AblateError(f"--row {row}: the plan has the rows 0 to {len(cells) - 1}")
    cell = cells[row]
    if cell.same_as is not None:
        raise AblateError(
            f"--row {row}: it trains the same as row {cell.same_as} ({cell.note}); type"
            f" --row {cell.same_as}"
        )
    if not cell.feasible:
        reason = why_infeasible(space, cell.levels, count_here)
        raise AblateError(f"--row {row}: it is not trained: {cell.note}") from reason
    # A row without a setting has the trials that choose it.
    trials = {trial.seed: trial for trial in cell.trials or cell.all_trials}
    if seed is None:
        return next(iter(trials.values()))
    if seed not in trials:
        raise AblateError(
            f"--seed {seed}: the seeds of the space are {', '.join(map(str, trials))}"
        )
    return trials[seed]


def train(
    trial: Trial,
    space: Space,
    *,
    epochs: int | None = None,
    profile_to: Path | None = None,
    hear: Callable[[Epoch], None],
    hear_line: Callable[[str], None] | None = None,
) -> str:
    """Trains a trial here, and returns a table of operators if it is profiled.

    The table is empty if there were too few steps. An error of the training is raised
    as it is.

    Args:
        epochs: how many, instead of those of the recipe.
        profile_to: the file that gets a trace for Chrome or Perfetto.
        hear: receives each epoch.
        hear_line: receives each line that a command prints.
    """
    if epochs is not None:
        trial = replace(trial, recipe=replace(trial.recipe, epochs=epochs))
    profiled: Any = _profiled(profile_to) if profile_to is not None else nullcontext()
    with _training(trial, space, hear_line) as training, profiled as profiler:
        while not training.finished:
            hear(training.epoch())
    if profiler is None:
        return ""
    return _operators(profiler) if profiler.has_trace else ""


def debug_command(trial: Trial, space: Space, *, epochs: int | None) -> int:
    """Runs the command of a trial under pdb, with the terminal of this process.

    Returns:
        the command's exit status.
    """
    from ablate.training.own_command import CommandTraining

    if epochs is not None:
        trial = replace(trial, recipe=replace(trial.recipe, epochs=epochs))
    with _training(trial, space) as training:
        assert isinstance(training, CommandTraining)
        return training.debug()


@contextmanager
def _training(
    trial: Trial, space: Space, hear_line: Callable[[str], None] | None = None
) -> Iterator[Any]:
    from ablate.training import Training
    from ablate.training.own import make_own

    resources = space.resources
    if resources.processes > 1:
        raise ExecutorError(
            "resources.processes is above 1, and this trains in one process; set"
            " resources: {processes: 1}"
        )
    device = device_of(resources)
    make: Any = Training
    with tempfile.TemporaryDirectory(prefix="ablate-try-") as folder:
        if trial.architecture.trainer:
            checkout = checkout_of(trial, Path(folder, "commits"))
            make = partial(make_own, hear=hear_line, checkout=checkout)
        training = make(trial, folder, device=device, threads=resources.threads)
        try:
            yield training
        finally:
            training.close()


@contextmanager
def _profiled(file: Path) -> Iterator[Any]:
    """Profiles some steps of whatever optimizer makes them.

    The profiler's `has_trace` says whether it has written the file.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.profiler import ProfilerActivity, profile, schedule

    def write(done: Any) -> None:
        done.has_trace = True
        done.export_chrome_trace(str(file))

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    profiler: Any = profile(
        activities=activities,
        schedule=schedule(
            wait=1, warmup=SKIPPED_STEPS - 1, active=PROFILED_STEPS, repeat=1
        ),
        on_trace_ready=write,
        acc_events=True,
    )
    profiler.has_trace = False
    handle = register_optimizer_step_post_hook(lambda *given: profiler.step())
    try:
        with profiler:
            yield profiler
    finally:
        handle.remove()


def _operators(profiler: Any) -> str:
    """The operators that take most of the time."""
    import torch

    by = "self_cpu_time_total"
    if torch.cuda.is_available():
        by = "self_device_time_total"
    table: str = profiler.key_averages().table(sort_by=by, row_limit=LINES)
    return table
