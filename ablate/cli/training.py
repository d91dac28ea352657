"""Verbs that train, and those that look into what was trained."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate import advice
from ablate.cli.options import (
    DEFAULT_RUNS,
    AddressOption,
    CheckpointsOption,
    CpusOption,
    ExecutorName,
    ExecutorOption,
    FileArgument,
    FormatOption,
    GpusOption,
    LogOption,
    RunsOption,
    Service,
    StoreOption,
)
from ablate.cli.output import Format, show, tell
from ablate.records import MOST_WHOLE

if TYPE_CHECKING:
    from ablate.pipeline import Options, Outcome


def run(
    file: FileArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    executor: ExecutorOption = ExecutorName.ray,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    ray_address: AddressOption = "",
    checkpoints: CheckpointsOption = "",
    log: LogOption = None,
    until_decided: Annotated[
        int | None,
        typer.Option(
            "--until-decided",
            metavar="SEEDS",
            min=3,
            max=1000,
            help="Add seeds where nothing can be said yet, up to so many a cell.",
        ),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Train what is not known yet of a search space, and print its table."""
    from ablate import space
    from ablate.pipeline import Options

    options = Options(
        runs=runs,
        store=store,
        executor=executor.value,
        cpus=cpus,
        gpus=gpus,
        ray_address=ray_address,
        checkpoints=checkpoints,
        log=tuple(dict.fromkeys(log or ())),
    )
    _train(
        lambda hooks: _run_space(space.read(file, until_decided), file, options, hooks),
        options,
        form,
    )


def _run_space(declared: Any, file: Path, options: Options, hooks: Any) -> Outcome:
    from ablate import pipeline

    return pipeline.run(declared, str(file), options, hooks)


def resume(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="Name of a study. [default: the last unfinished]"
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    executor: ExecutorOption = ExecutorName.ray,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    ray_address: AddressOption = "",
    checkpoints: CheckpointsOption = "",
    log: LogOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Finish what was not finished of a study, from its last checkpoints, and print its
    table.
    """
    from ablate import pipeline

    options = pipeline.Options(
        runs,
        store,
        executor.value,
        cpus,
        gpus,
        ray_address,
        checkpoints,
        tuple(dict.fromkeys(log or ())),
    )
    _train(lambda hooks: pipeline.resume(study, options, hooks), options, form)


def _followed(options: Options) -> Iterator[str]:
    """The commands that show what is told to other services."""
    runs = options.runs
    if Service.tensorboard in options.log:
        yield f"tensorboard --logdir {runs}/tensorboard"
    if Service.mlflow in options.log and "MLFLOW_TRACKING_URI" not in os.environ:
        yield f"mlflow ui --backend-store-uri sqlite:///{runs}/mlflow.db"
    if Service.wandb in options.log and os.environ.get("WANDB_MODE") == "offline":
        yield f"wandb sync {runs}/wandb/offline-run-*"


def _train(start: Any, options: Options, form: Format) -> None:
    """Runs with progress, prints the table, and says what to do next."""
    from ablate import pipeline
    from ablate.cli.progress import Progress
    from ablate.study import Study

    for command in _followed(options):
        tell(f"Follow it with: {command}")
    with Progress() as progress:
        outcome = start(
            pipeline.Hooks(
                progress.planned, progress.proposed, progress.event, progress.stop
            )
        )
    if options.executor != "ray":
        how = f" --executor {options.executor}"
    else:
        how = ""
    if options.ray_address:
        how += f" --ray-address {options.ray_address}"
    how += "".join(f" --log {service}" for service in options.log)
    if outcome.interrupted:
        done = outcome.trials - outcome.unfinished - outcome.failed
        again = advice.command("resume", outcome.study) + how
        tell(
            f"Interrupted: {done} of {outcome.trials} trials done. Go on with: {again}"
        )
        raise typer.Exit(130)
    show(Study(outcome.study, options.url).grid(), form.value)
    if outcome.undiagnosed:
        look = advice.command("diagnose", outcome.study)
        tell(
            f"{outcome.undiagnosed} trials were known before; look inside them with:"
            f" {look}"
        )
    done = f"{outcome.trained} trials trained, {outcome.known_before} known before"
    if outcome.failed:
        tell(
            f"{done}, {outcome.failed} failed:"
            f" {advice.command('status', outcome.study)}"
        )
        raise typer.Exit(1)
    tell(f"{done}. Next: {advice.command('effects', outcome.study)}")


def reproduce(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL",
            help="A completed trial's hash, or its beginning; see `ablate status`.",
        ),
    ],
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Train a stored trial again, and say whether it came out the same.

    Ends with 1 where it did not; writes nothing.
    """
    from ablate.cli.inside import reproduced
    from ablate.pipeline import Options

    if not reproduced(trial, Options(runs, store)):
        raise typer.Exit(1)


def diagnose(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY|TRIAL...", help="Studies, or trials by their hash."
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name", help="A diagnostic; repeatable. [default: all that are cheap]"
        ),
    ] = None,
    images: Annotated[
        int,
        typer.Option(
            "--images", min=1, max=MOST_WHOLE, help="On how many test images."
        ),
    ] = 64,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    checkpoints: CheckpointsOption = "",
    form: FormatOption = Format.table,
) -> None:
    """Look inside trained networks, from their checkpoints: by layer, stored, and
    printed.
    """
    from ablate import pipeline
    from ablate.cli.inside import diagnosed

    for grid in diagnosed(
        tuple(targets),
        tuple(names or ()),
        images,
        pipeline.Options(runs, store, checkpoints=checkpoints),
    ):
        show(grid, form.value)
