"""Stores what happens in a run, and tells those who listen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ablate.budget import BudgetMeter
from ablate.execution.logs import Logs
from ablate.machine.filesystems import remove_checkpoint
from ablate.records import WITH_RESULT, Cell, Ended, Event, Space, Status
from ablate.scheduling.first_failures import FirstFailures
from ablate.scheduling.options import Options
from ablate.store.session import StoreSession

if TYPE_CHECKING:
    from ablate.execution.loggers import Loggers
    from ablate.scheduling.preview import Preview


@dataclass
class Hooks:
    """What the caller hears while a study runs, and how it asks the run to stop.

    Attributes:
        planned: receives the preview before training begins; with `across`, that of
            each size.
        begun: receives the preview of a size when its training begins.
        proposed: receives new cells, and cells that get more seeds, each with the
            trials that are left to train.
        event: receives every event after it is stored.
        stop: returns True if the run is to stop.
    """

    planned: Callable[[Preview], None] = lambda preview: None
    begun: Callable[[Preview], None] = lambda preview: None
    proposed: Callable[[list[Cell]], None] = lambda cells: None
    event: Callable[[Event], None] = lambda event: None
    stop: Callable[[], bool] = lambda: False


@dataclass
class Recorder:
    """Stores each event, then passes it on. Executors may call it from any thread.

    Attributes:
        remove_checkpoint_of: receives the hash of a completed trial once its result is
            stored.
        meter: counts what the run uses of its budget.
        failures: notices that the first trials fail in the same way.
        ended: the last status of each trial that ended.
        loggers: the services that receive each event after it is stored.
        returned: receives the hash of a trial that came back without a result.
    """

    store: StoreSession
    hooks: Hooks
    remove_checkpoint_of: Callable[[str], None]
    meter: BudgetMeter
    failures: FirstFailures
    ended: dict[str, Status] = field(default_factory=dict)
    loggers: Loggers | None = None
    returned: Callable[[str], None] = lambda key: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def must_stop(self) -> bool:
        """Whether the run is to end before all trials are trained."""
        return self.hooks.stop() or self.meter.must_stop or bool(self.failures.error)

    def record(self, event: Event) -> None:
        with self._lock:
            if not self.store.writer.write(event):
                # The lease ran out, and another driver has taken the trial over.
                self.returned(event.trial)
                return
            self.meter.count(event)
            self.failures.count(event)
            if isinstance(event, Ended):
                self._end(event)
            if self.loggers is not None:
                self.loggers.tell(event)
            # Under the lock, so that a hook receives one event at a time.
            self.hooks.event(event)

    def _end(self, event: Ended) -> None:
        self.ended[event.trial] = event.status
        # The attempt was interrupted, or another process still trains the trial.
        if event.status == Status.RUNNING:
            self.returned(event.trial)
        if event.status == Status.COMPLETED:
            self.remove_checkpoint_of(event.trial)


def make_recorder(
    preview: Preview, options: Options, store: StoreSession, hooks: Hooks
) -> Recorder:
    """Returns the recorder of a run, which knows what earlier runs have used."""
    declared = preview.plan.space
    has_result = any(trial.status in WITH_RESULT for trial in preview.known.values())
    return Recorder(
        store=store,
        hooks=hooks,
        remove_checkpoint_of=_checkpoint_remover(declared, options, store),
        meter=_meter(declared, options, store),
        failures=FirstFailures(is_first=not has_result),
    )


def _meter(declared: Space, options: Options, store: StoreSession) -> BudgetMeter:
    if not options.budget.is_limited:
        return BudgetMeter(options.budget)
    return BudgetMeter(
        budget=options.budget,
        before=store.reader.costs.used(declared.studies),
    )


def _checkpoint_remover(
    declared: Space, options: Options, store: StoreSession
) -> Callable[[str], None]:
    """The function to call with the hash of a completed trial.

    It removes the trial's checkpoint if the space says `keep: none`, and otherwise
    does nothing.
    """
    if declared.keep != "none":
        return lambda key: None
    folder = options.checkpoints_of(store.writer.store_id)
    return lambda key: remove_checkpoint(f"{folder}/{key}")


def make_loggers(declared: Space, options: Options) -> Loggers:
    """Returns the services of a run, which know its trials by their levels."""
    from ablate.execution.loggers import Loggers

    return Loggers(logs_of(declared, options))


def logs_of(declared: Space, options: Options) -> Logs:
    """Returns which services log the trials of a space, and how they name them."""
    # The level of each factor names a trial's run in a service. A control differs from
    # the baseline in its width.
    names = list(declared.factors.levels)
    if declared.control and "size.width" not in names:
        names.append("size.width")
    if declared.tune is not None:
        names += declared.tune.names
    return Logs(options.log, options.runs, declared.name, tuple(names))
