"""What the command line does, as Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablate import factors, pipeline
from ablate.budget import Budget
from ablate.errors import AblateError
from ablate.own import registry
from ablate.pipeline import Options, Preview
from ablate.progress_bar import ProgressBar, in_notebook
from ablate.records import Architecture, Cost, Settings
from ablate.results.study import Study
from ablate.space.declared import DeclaredSpace, read_declared
from ablate.text import advice
from ablate.trained.chain import Chain

if TYPE_CHECKING:
    from torch import nn


def use(*files: str | Path) -> None:
    """Loads files with parts of your own, as `--with` does on the command line.

    A file that has changed is loaded again.

    Raises:
        AblateError: a file is missing, fails, or declares no part.
    """
    for file in files:
        registry.load_file(file)


def preview(
    declared: DeclaredSpace, *, runs: str | Path = "runs", store: str = ""
) -> Preview:
    """Returns what running a space would do; nothing is trained.

    Args:
        declared: a YAML file, or a mapping with the same keys.
        runs: the folder with the store and checkpoints.
        store: the file or URL of the store; by default ablate.db in `runs`.

    Raises:
        AblateError: the space has mistakes, or nothing in it can be trained.
    """
    options = Options(Path(runs), store)
    return pipeline.preview(read_declared(declared)[0], options.url, options)


def run(
    declared: DeclaredSpace,
    *,
    runs: str | Path = "runs",
    store: str = "",
    executor: str = "ray",
    cpus: int | None = None,
    gpus: int | None = None,
    ray_address: str = "",
    checkpoints: str = "",
    log: Sequence[str] = (),
    max_trials: int | None = None,
    max_hours: float | None = None,
    rows: Sequence[int] = (),
    seeds: Sequence[int] = (),
    progress: bool | None = None,
    predicted: bool = False,
) -> Study:
    """Trains the trials of a space that have no result, and returns its results.

    Args:
        declared: a YAML file, or a mapping with the same keys.
        runs: the folder with the store and checkpoints.
        store: the file or URL of the store; by default ablate.db in `runs`.
        executor: ray, local or inline.
        cpus: CPU cores that a local Ray may use; by default all.
        gpus: GPUs that a local Ray may use; by default all.
        ray_address: a running Ray cluster to join, HOST:PORT or auto; by default Ray
            starts on this machine.
        checkpoints: a folder or URL that all nodes share; by default RUNS/checkpoints.
        log: services that also receive each epoch: tensorboard, mlflow, wandb.
        max_trials: the most trials that all runs of the study may begin.
        max_hours: the most hours of training, added up over trials and runs.
        rows: train trials of these rows only; by default of all.
        seeds: train trials with these seeds only; by default with all.
        progress: show a bar on stderr; by default only in notebooks.
        predicted: with `across`, train the predicted size, once the others are trained.

    Raises:
        AblateError: the space, the data or the machine do not allow it, or trials
            failed.
    """
    space, file = read_declared(declared)
    options = Options(
        runs=Path(runs),
        store=store,
        executor=executor,
        cpus=cpus,
        gpus=gpus,
        ray_address=ray_address,
        checkpoints=checkpoints,
        log=tuple(log),
        budget=Budget(
            trials=max_trials,
            hours=max_hours,
        ),
        rows=tuple(rows),
        seeds=tuple(seeds),
    )
    if progress is None:
        progress = in_notebook()
    if progress:
        with ProgressBar() as bar:
            outcome = pipeline.run(
                space, file, options, bar.hooks(), predicted=predicted
            )
    else:
        outcome = pipeline.run(space, file, options, predicted=predicted)
    if outcome.failed:
        raise AblateError(
            f"{outcome.failed} trials of {outcome.study} failed; see"
            f" {advice.command('status', outcome.study)}"
        )
    return Study(outcome.study, options.url)


def open_chain(
    name: str,
    *,
    runs: str | Path = "runs",
    store: str = "",
    executor: str = "ray",
    cpus: int | None = None,
    gpus: int | None = None,
    max_trials: int | None = None,
    max_hours: float | None = None,
) -> Chain:
    """Returns a chain of a store; `begin`, `begin_space` or
    `begin_reported` makes it.

    >>> chain = ablate.open_chain("ours")
    >>> chain.begin_reported("first", {0: 0.91, 1: 0.90}, direction="max")
    >>> chain.report("rmsnorm", {0: 0.93}).next
    'report seed 1 of rmsnorm'

    Args:
        name: letters, digits, `-`, `_` and `.`.
        runs: the folder with the store and checkpoints.
        store: the file or URL of the store; by default ablate.db in `runs`.
        executor: ray, local or inline.
        cpus: see `run`.
        gpus: see `run`.
        max_trials: the most trials of all proposals together.
        max_hours: the most hours of training of all proposals together.

    Raises:
        AblateError: the name is not allowed.
    """
    options = Options(
        runs=Path(runs),
        store=store,
        executor=executor,
        cpus=cpus,
        gpus=gpus,
        budget=Budget(trials=max_trials, hours=max_hours),
    )
    return Chain(name, options)


def open_study(name: str, *, runs: str | Path = "runs", store: str = "") -> Study:
    """Returns a study of a store.

    Args:
        name: the name of the study; `ablate status` lists them.
        runs: the folder with the store.
        store: the file or URL of the store; by default ablate.db in `runs`.
    """
    return Study(name, Options(Path(runs), store).url)


def create_model(
    backbone: str,
    settings: Settings | None = None,
    *,
    image_size: int | None = None,
    channels: int = 3,
    classes: int = 1000,
) -> nn.Module:
    """Returns a network with factors at given levels.

    It is initialised from torch's global random state.

    >>> ablate.create_model("deit_small_patch16_224", {"shortcuts.count": 2})

    Args:
        backbone: a name of `ablate backbones`, or another model of timm.
        settings: levels by factor name; factors that are left out are neutral.
        image_size: side of the images in pixels; by default that of the backbone.
        channels: channels of the images.
        classes: number of classes.

    Shape:
        (batch, channels, image_size, image_size) to (batch, classes).

    Raises:
        UnknownName: no such backbone or factor.
        Infeasible: the settings cannot be built together.
        AblateError: a level is not allowed, or would change nothing.
    """
    from ablate.models import build

    return build(_architecture(backbone, settings, image_size, channels, classes))


def model_cost(
    backbone: str,
    settings: Settings | None = None,
    *,
    image_size: int | None = None,
    channels: int = 3,
    classes: int = 1000,
) -> Cost:
    """Returns the cost of a network with factors at given levels, for one image.

    Args:
        backbone: a name of `ablate backbones`, or another model of timm.
        settings: levels by factor name; factors that are left out are neutral.
        image_size: side of the images in pixels; by default that of the backbone.
        channels: channels of the images.
        classes: number of classes.

    Raises:
        UnknownName: no such backbone or factor.
        Infeasible: the settings cannot be built together.
        AblateError: a level is not allowed, or would change nothing.
    """
    from ablate.cost import count

    return count(_architecture(backbone, settings, image_size, channels, classes))


def _architecture(
    backbone: str,
    settings: Settings | None,
    image_size: int | None,
    channels: int,
    classes: int,
) -> Architecture:
    from ablate.families import find, resolve

    size = image_size or find(backbone).image_size(backbone)
    checked = factors.check(settings or {}, backbone)
    return resolve(backbone, size, channels, classes, checked)
