"""Live progress: bars on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from ablate.cli.generations import generation_lines
from ablate.cli.output import busy_note, duration, tell_line
from ablate.execution.signals import STOPS, give_back, keep
from ablate.records import (
    Cell,
    Ended,
    Event,
    Progressed,
    Settings,
    Started,
    Status,
    Trial,
    Tune,
    level_text,
)
from ablate.report.numbers import fixed
from ablate.text import escape

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from ablate.pipeline import Preview


# The fewest epochs by which the time that is left is estimated.
LEAST_EPOCHS = 3


class Progress:
    """Shows the progress of a study.

    The first Ctrl-C, SIGTERM or SIGHUP asks the run to stop; the second one ends it
    immediately.
    """

    def __init__(self, *, announces: bool = True) -> None:
        # Whether it says what is declared before the first trial.
        self._announces = announces
        self._live = sys.stderr.isatty()
        self._stopping = False
        self._trials: dict[str, Trial] = {}
        self._labels: dict[str, str] = {}
        self._baseline: Settings = {}
        self._epochs: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._running: set[str] = set()
        self._done = 0
        self._over: set[str] = set()
        self._best: tuple[float, str] | None = None
        self._metric = ""
        self._digits = 2
        self._sign = 1
        self._word = ""
        # The size that is trained, if there are several.
        self._size = ""
        self._until = False
        # The fresh seeds on which a search confirms its best cells.
        self._fresh: frozenset[int] = frozenset()
        # The nuisance hyperparameters, and the rows whose choice was printed.
        self._tune: Tune | None = None
        self._told: set[int] = set()
        # Epochs that this run has trained, when the first of them ended, and the trials
        # that ran then. What comes before is the start of workers.
        self._trained = 0
        self._first = 0.0
        self._beside = 1
        self._bars: Bars | None = None

    def __enter__(self) -> Progress:
        # Under `nohup` SIGHUP is ignored, and it stays ignored.
        heard = [
            number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN
        ]
        self._previous = {number: keep(number, self._on_signal) for number in heard}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            give_back(number, handler)
        self._stop_bars()

    def stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping

    def planned(self, shown: Preview) -> None:
        """Shows the plan before training begins."""
        space = shown.plan.space
        self._metric = space.criterion.measured
        self._digits = space.criterion.compared.digits
        self._sign = 1 if space.criterion.direction == "max" else -1
        self._trials |= {trial.hash: trial for trial in shown.to_train}
        self._baseline = space.factors.baseline
        self._size = f"{space.across.size_text} " if space.across else ""
        self._label(shown.plan.cells)
        left_out = len(shown.not_chosen)
        time_ = f", about {duration(shown.seconds)}" if shown.seconds else ""
        time_ += busy_note(shown.seconds)
        trials = (
            f"{len(shown.plan.trials) - len(shown.shared)} trials,"
            f" {shown.known_trials} known, {len(shown.to_train)} to train"
        )
        if left_out:
            trials += f", {left_out} left out"
        if shown.more_cells == 0:
            more = ""
        else:
            more = (
                f", {'more' if shown.more_cells is None else f'{shown.more_cells} more cells'} to"
                " be proposed"
            )
        if space.seeds.looks:
            seeds = f"{space.seeds.looks.first} to {space.seeds.looks.most}"
        else:
            seeds = str(len(space.seeds.numbers))
        if space.seeds.baseline is not None:
            seeds = f"{seeds} (row 0: {space.seeds.baseline})"
        if self._announces:
            self._say(
                f"{space.name}: {len(shown.plan.cells)} cells x {seeds} seeds,"
                f" {trials}{time_}{more}"
            )
        if self._announces and (shown.is_next or shown.has_work):
            for line in generation_lines(shown):
                self._say(line)
        if space.data.validation:
            self._word = f"validation {space.criterion.measured}"
        else:
            self._word = space.criterion.measured
        self._until = space.seeds.looks is not None
        self._tune = space.tune
        self._fresh = frozenset(space.confirmation_seeds)
        if self._live and self._bars is None and (shown.to_train or more):
            self._start_bars()

    def begun(self, shown: Preview) -> None:
        """Shows which size trains next."""
        across = shown.plan.space.across
        if across is None:
            return
        self._size = f"{across.size_text} "
        self._told.clear()
        if shown.has_work:
            which = f"size {across.number + 1} of {len(across.sizes)}"
            if across.is_predicted:
                which = "the predicted size"
            self._say(f"{across.size_text}: {which}")

    def proposed(self, cells: list[Cell]) -> None:
        """Adds cells that a search has proposed, or that get more seeds."""
        before = len(self._trials)
        confirmed = [
            str(cell.index)
            for cell in cells
            if self._fresh and cell.trials and cell.trials[-1].seed in self._fresh
        ]
        if confirmed:
            self._say(
                f"the search has ended; rows {', '.join(confirmed)} are trained on"
                f" {len(self._fresh)} fresh seeds"
            )
        self._trials |= {
            trial.hash: trial for cell in cells for trial in cell.all_trials
        }
        self._label(cells)
        for cell in cells:
            self._tell_choice(cell)
        if self._until and len(self._trials) > before:
            rows = ", ".join(str(cell.index) for cell in cells if cell.index)
            self._say(
                f"inconclusive so far: rows {rows}; {len(self._trials) - before} more"
                " trials"
            )

    def _tell_choice(self, cell: Cell) -> None:
        """Says which setting a row has chosen, once."""
        chosen = set(cell.settings)
        if self._tune is None or len(chosen) != 1 or cell.index in self._told:
            return
        self._told.add(cell.index)
        point = self._tune.points[chosen.pop()]
        levels = ", ".join(
            f"{name} = {level_text(level)}" for name, level in point.items()
        )
        self._say(f"{self._size}row {cell.index} has chosen {levels}")

    def _label(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            changed = (
                f"{name}={level_text(level)}"
                for name, level in cell.levels.items()
                if level != self._baseline.get(name)
            )
            levels = self._size + (" ".join(changed) or "baseline")
            self._labels |= {
                trial.hash: f"{levels}, seed {trial.seed}" for trial in cell.trials
            }
            # A trial at the setting of row 0 may be one of the table, too.
            # One that chooses at the smallest size has the label of that size.
            self._labels = {
                at.trial.hash: f"{levels}, setting {at.setting}, seed {at.trial.seed}"
                for at in cell.at_settings
            } | self._labels

    def event(self, happened: Event) -> None:
        """Shows one event."""
        key = happened.trial
        if isinstance(happened, Started):
            # A second start without an end in between.
            if key in self._running:
                self._say(
                    f"the worker was lost: {self._labels[key]}; the trial continues"
                    f" after epoch {happened.epoch}"
                )
            self._running.add(key)
            self._epochs[key] = happened.epoch
        elif isinstance(happened, Progressed):
            last = happened.epochs[-1]
            if not self._trained:
                self._first = time.monotonic()
                self._beside = len(self._running)
            self._trained += max(0, last.number - self._epochs.get(key, 0))
            self._epochs[key], self._last[key] = (
                last.number,
                last.metrics[self._metric],
            )
        elif isinstance(happened, Ended):
            self._ended(happened)
        self._update_bars()

    def _ended(self, happened: Ended) -> None:
        key = happened.trial
        self._running.discard(key)
        if happened.status == Status.RUNNING:
            return
        self._done += 1
        self._over.add(key)
        value = self._last.get(key)
        if happened.status == Status.COMPLETED and value is not None:
            # With the sign, the largest value is the best one for a loss too.
            self._best = max(
                filter(None, (self._best, (self._sign * value, self._labels[key])))
            )
        if not self._live:
            if happened.status == Status.COMPLETED and value is not None:
                result = f"{self._word} {fixed(value, self._digits)}"
            else:
                result = happened.status.value
            left = self._seconds_left()
            time_ = f", {duration(left)} left" if left else ""
            self._say(
                f"[{self._done}/{len(self._trials)}{time_}] {self._labels[key]}: {result}"
            )
        if happened.status == Status.FAILED:
            last_line = (happened.error.strip().splitlines() or ["no message"])[-1]
            self._say(f"failed: {self._labels[key]}: {last_line}")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True
        if number == signal.SIGHUP:
            # The terminal is gone: writing to it would fail.
            self._stop_bars()
            self._live = False
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open until the process ends
        self._say(
            "stopping after the running epochs; a second Ctrl-C or signal stops at once"
        )

    def _say(self, text: str) -> None:
        """Prints one line, with line feeds and control sequences escaped."""
        if self._bars is None:
            tell_line(text)
            return
        from rich.text import Text

        self._bars.console.print(Text(escape.line(text)))

    def _start_bars(self) -> None:
        from rich import progress
        from rich.console import Console

        bars = progress.Progress(
            progress.TextColumn("{task.description:<7}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._trial_bar = bars.add_task("trials", total=len(self._trials), note="")
        self._epoch_bar = bars.add_task(
            "epochs",
            total=sum(trial.recipe.epochs for trial in self._trials.values()),
            note="",
        )
        bars.start()
        self._bars = bars

    def _update_bars(self) -> None:
        if self._bars is None:
            return
        done = sum(self._epochs.values())
        total = self._all_epochs()
        left = self._seconds_left()
        if self._best:
            value = fixed(self._sign * self._best[0], self._digits)
            best = f", best {self._word} {value} ({self._best[1]})"
        else:
            best = ""
        update = self._bars.update
        note = escape.line(f"{len(self._running)} running{best}")
        # The totals change: a search and further seeds add trials.
        update(
            self._trial_bar, total=len(self._trials), completed=self._done, note=note
        )
        update(
            self._epoch_bar,
            total=total,
            completed=done,
            note=f"{duration(left)} left" if left is not None else "",
        )

    def _all_epochs(self) -> int:
        # A training may end early.
        return sum(
            self._epochs.get(key, 0) if key in self._over else trial.recipe.epochs
            for key, trial in self._trials.items()
        )

    def _seconds_left(self) -> float | None:
        """The time that the epochs that are left take, if they take as long as those so
        far.

        None before a trial has ended and a twentieth of all epochs is trained: the first
        ones take longer, and trials that run side by side report at the same time.
        """
        left = self._all_epochs() - sum(self._epochs.values())
        # The first epochs of the trials beside it ended at the same time.
        timed = self._trained - self._beside
        if not self._over or timed < max(LEAST_EPOCHS, (self._trained + left) / 20):
            return None
        return (time.monotonic() - self._first) * left / timed

    def _stop_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
