"""Logs trials that are trained to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence

from ablate.errors import ExecutorError, StoreError
from ablate.execution.loggers import ADAPTERS, Run, Service
from ablate.pipeline import Options, cost_plan
from ablate.records import (
    RESOLVED,
    Ended,
    Event,
    Known,
    Measured,
    Measurement,
    Progressed,
    Tested,
    Trial,
)
from ablate.scheduling.recorder import logs_of
from ablate.scheduling.stored_space import validated_space
from ablate.store.reader import Reader
from ablate.text.advice import option


def log_stored(
    name: str,
    options: Options,
    hear: Callable[[int, int], None] = lambda done, of: None,
) -> int:
    """Logs the trials of a study that have ended to the services of `options.log`.

    A service then has what it would have if the study had been run with it. What it has
    of these trials already is replaced.

    Args:
        hear: receives the number of logged trials and of all trials.

    Returns:
        the number of logged trials.

    Raises:
        UnknownName: there is no such study.
        StoreError: the plan of this version has none of the trials, or none has ended.
        ExecutorError: a service cannot be used, or fails.
    """
    with Reader(options.url) as reader:
        stored = reader.studies.get(name)
        hashes = [trial.trial for trial in reader.trials.of(name, beside=True)]
        known = reader.trials.known(hashes)
        measurements = reader.diagnostics.measurements(hashes)
    ended = [key for key in dict.fromkeys(hashes) if known[key].status in RESOLVED]
    declared = validated_space(stored)
    planned = {trial.hash: trial for trial in cost_plan(declared, options.url).trials}
    trials = [planned[key] for key in ended if key in planned]
    if not trials:
        raise StoreError(
            f"{name} has no trial that has ended and is in its plan; see: ablate status"
            f" {name}"
        )
    logs = logs_of(declared, options)
    has_split = declared.data.validation > 0
    services = list(dict.fromkeys(options.log))
    steps = itertools.count()
    for service in services:
        with contextlib.closing(ADAPTERS[service](logs)) as log:
            for done, trial in enumerate(trials):
                hear(next(steps), len(services) * len(trials))
                run = Run.of(trial, logs.factors)
                events = _events(
                    trial,
                    known[trial.hash],
                    measurements.get(trial.hash, ()),
                    has_split=has_split,
                )
                try:
                    _log(log, run, events, known[trial.hash])
                except Exception as error:
                    # Each service has errors of its own.
                    raise ExecutorError(
                        f"{option('log')} {service}: {error}; {done} trials are logged"
                    ) from error
    hear(next(steps), len(services) * len(trials))
    return len(trials)


def _events(
    trial: Trial,
    known: Known,
    measurements: Sequence[Measurement],
    *,
    has_split: bool,
) -> list[Event]:
    """What a run would have reported of a trial."""
    events: list[Event] = [Progressed(trial.hash, known.epochs)]
    if measurements:
        events.append(Measured(trial.hash, tuple(measurements)))
    tested: Tested | None = None
    if has_split and known.final:
        # The store also has the training loss of the selected epoch.
        measured = {
            name: value for name, value in known.final.items() if name != "train_loss"
        }
        tested = Tested(len(known.epochs), measured)
    events.append(Ended(trial.hash, known.status, tested=tested))
    return events


def _log(service: Service, run: Run, events: Sequence[Event], known: Known) -> None:
    service.start(run)
    for event in events:
        run.collect(event)
    values: Mapping[str, float]
    for epoch, values in sorted(run.waiting.items()):
        service.log(run, epoch, values)
    service.end(run, known.status)
