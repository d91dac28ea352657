"""A bar over the epochs of a study: a widget in notebooks, a line in scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ablate.pipeline import Hooks
from ablate.records import Cell, Ended, Event, Progressed, Status, Trial

if TYPE_CHECKING:
    from ablate.pipeline import Preview


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


class ProgressBar:
    """Shows how many epochs are trained, with the time that is left."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._name = ""
        # The epochs of each trial that is to be trained, and those that it has.
        self._total: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._ended = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def hooks(self) -> Hooks:
        """Returns what a run calls."""
        return Hooks(planned=self._planned, proposed=self._proposed, event=self._event)

    def _planned(self, shown: Preview) -> None:
        self._name = shown.plan.space.name
        self._add(shown.to_train)

    def _proposed(self, cells: list[Cell]) -> None:
        self._add(trial for cell in cells for trial in cell.all_trials)

    def _add(self, trials: Iterable[Trial]) -> None:
        self._total |= {trial.hash: trial.recipe.epochs for trial in trials}
        if not self._total:
            return
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(desc=self._name, unit="epoch", file=sys.stderr)
        self._bar.total = sum(self._total.values())
        self._show()

    def _event(self, happened: Event) -> None:
        if isinstance(happened, Progressed):
            self._done[happened.trial] = happened.epochs[-1].number
        elif isinstance(happened, Ended) and happened.status != Status.RUNNING:
            self._ended += 1
            # A trial that was stopped early trains no further epochs.
            trained = self._done.get(happened.trial, 0)
            self._total[happened.trial] = trained
        else:
            return
        self._show()

    def _show(self) -> None:
        self._bar.total = sum(self._total.values())
        self._bar.n = sum(self._done.values())
        self._bar.set_postfix_str(f"{self._ended}/{len(self._total)} trials")
