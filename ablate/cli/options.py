"""Options that several verbs have."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer
from typer import CallbackParam

from ablate.cli.output import Format
from ablate.records import MOST_AT_ONCE, MOST_WHOLE
from ablate.text import advice

if TYPE_CHECKING:
    from ablate.scheduling.options import Options


class ExecutorName(StrEnum):
    """How trials run."""

    ray = "ray"
    local = "local"
    inline = "inline"


class Service(StrEnum):
    """Other services that epochs are logged to."""

    tensorboard = "tensorboard"
    mlflow = "mlflow"
    wandb = "wandb"


# A URL with a password in it belongs here: the command line of a process is visible to
# every user of the machine.
STORE_VARIABLE = "ABLATE_STORE"
# Units of a width in inches; `pt` is TeX's point, as in `\the\columnwidth`.
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
LEAST_WIDTH = 1
MOST_WIDTH = 50


def _kept(context: typer.Context, parameter: CallbackParam, value: Any) -> Any:
    """Records an option of this command, for the commands that messages suggest."""
    values = value if isinstance(value, list) else [value]
    usual = (
        str(parameter.get_default(context) or ""),
        os.environ.get(STORE_VARIABLE) if parameter.name == "store" else None,
    )
    words = [str(word) for word in values if word]
    advice.keep(parameter.opts[0], *(word for word in words if word not in usual))
    return value


def inches(text: str | float) -> float:
    """Returns a width in inches. Without a unit, it is in inches.

    Raises:
        BadParameter: the text is not a width from 1 to 50 inches.
    """
    read = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(text).lower())
    unit = read[2] or "in" if read else ""
    if read is None or unit not in INCHES:
        raise typer.BadParameter(
            f"'{text}' is not a width; type one such as 3.25, 3.25in, 8.3cm or 240pt"
        )
    width = float(read[1]) * INCHES[unit]
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        raise typer.BadParameter(
            f"{text} is {width:g} inches; a figure is from {LEAST_WIDTH} to {MOST_WIDTH}"
            " inches wide"
        )
    return width


def load_parts(
    context: typer.Context, parameter: CallbackParam, files: list[Path] | None
) -> list[Path]:
    """Loads the user's own parts, before the verb looks for any name."""
    from ablate.own import registry

    named = [str(file) for file in files or ()]
    advice.keep(advice.WITH, *named)
    # A process may run several commands, as tests do.
    registry.clear()
    registry.load_all(named)
    return list(files or ())


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="YAML file of a space.")
]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="Name of a study; `ablate status` lists them."
    ),
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        show_envvar=False,
        callback=_kept,
        help=(
            "Database URL or SQLite file; the variable ABLATE_STORE can set it too."
            " [default: RUNS/ablate.db]"
        ),
    ),
]
RunsOption = Annotated[
    Path,
    typer.Option(
        "--runs", metavar="DIR", callback=_kept, help="Folder of store and checkpoints."
    ),
]
WithOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="FILE",
        callback=load_parts,
        help="Python file with parts of your own; repeatable.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=LEVEL",
        help="Level of a factor of the trainer, or a field as recipe.lr=0.1;"
        " repeatable.",
    ),
]
TrainerOption = Annotated[
    str,
    typer.Option(
        "--trainer", metavar="NAME", help="Trainer, if the files declare several."
    ),
]
AllOption = Annotated[
    bool,
    typer.Option("--all", help="Show all columns and notes; other formats have them."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]
ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(
        "--executor",
        callback=_kept,
        help="ray: on all cores, or on a cluster; local: on all cores, without Ray; inline: in"
        " this process, one trial at a time.",
    ),
]
MaxTrialsOption = Annotated[
    int | None,
    typer.Option(
        "--max-trials",
        metavar="TRIALS",
        min=1,
        max=MOST_WHOLE,
        help="Maximum number of trials that all runs of the study together may begin.",
    ),
]
MaxHoursOption = Annotated[
    float | None,
    typer.Option(
        "--max-hours",
        metavar="HOURS",
        help="Maximum hours of training and testing, added up over all trials and runs of the"
        " study.",
    ),
]
UntilDecidedOption = Annotated[
    int | None,
    typer.Option(
        "--until-decided",
        metavar="SEEDS",
        min=3,
        max=1000,
        help="Add seeds to inconclusive cells, up to this number per cell.",
    ),
]
CpusOption = Annotated[
    int | None,
    typer.Option("--cpus", min=1, max=MOST_AT_ONCE, help="CPUs to use. [default: all]"),
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", min=0, max=MOST_AT_ONCE, help="GPUs to use. [default: all]"),
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        callback=_kept,
        help="Join a Ray cluster: HOST:PORT, or auto. [default: a private local Ray]",
    ),
]
LogOption = Annotated[
    list[Service] | None,
    typer.Option(
        "--log",
        callback=_kept,
        help=(
            "Also log each epoch to TensorBoard, MLflow or Weights & Biases;"
            " repeatable."
        ),
    ),
]
CheckpointsOption = Annotated[
    str,
    typer.Option(
        "--checkpoints",
        metavar="URL",
        callback=_kept,
        help="Where the checkpoints are: a folder or URL that all nodes can reach."
        " [default: RUNS/checkpoints]",
    ),
]

DEFAULT_RUNS = Path("runs")


RowsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--row",
        min=0,
        max=MOST_WHOLE,
        help="Train trials of this row of the plan only; repeatable.",
    ),
]
SeedsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--seed",
        min=0,
        max=MOST_WHOLE,
        help="Train trials with this seed only; repeatable.",
    ),
]


def run_options(
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    executor: ExecutorOption = ExecutorName.ray,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    ray_address: AddressOption = "",
    checkpoints: CheckpointsOption = "",
    log: LogOption = None,
    max_trials: MaxTrialsOption = None,
    max_hours: MaxHoursOption = None,
    row: RowsOption = None,
    seed: SeedsOption = None,
) -> Options:
    """Returns the options of a run. This is where `run` and `resume` declare them."""
    from ablate.budget import Budget
    from ablate.scheduling.options import Options

    return Options(
        runs=runs,
        store=store,
        executor=executor.value,
        cpus=cpus,
        gpus=gpus,
        ray_address=ray_address,
        checkpoints=checkpoints,
        log=tuple(dict.fromkeys(log or ())),
        budget=Budget(
            trials=max_trials,
            hours=max_hours,
        ),
        rows=tuple(dict.fromkeys(row or ())),
        seeds=tuple(dict.fromkeys(seed or ())),
    )


def with_run_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Gives a verb the parameters of `run_options` in place of its own `options`.

    A parameter that the verb has itself stays as it is.
    """
    # Nothing reads the type of the results, which is not imported here.
    unread = {"Options": Any}
    hints = get_type_hints(run_options, localns=unread, include_extras=True)
    hints |= get_type_hints(verb, localns=unread, include_extras=True)
    own = inspect.signature(verb).parameters
    every = inspect.signature(run_options).parameters
    names = [name for name in every if name not in own]
    parameters: list[inspect.Parameter] = []
    for parameter in own.values():
        if parameter.name == "options":
            parameters.extend(every[name] for name in names)
        else:
            parameters.append(parameter)

    def with_options(**values: Any) -> None:
        options = run_options(**{name: values.pop(name) for name in names})
        verb(options=options, **values)

    # What Typer reads.
    typed = [each.replace(annotation=hints[each.name]) for each in parameters]
    wrapper: Any = wraps(verb)(with_options)
    wrapper.__signature__ = inspect.Signature(typed)
    wrapper.__annotations__ = {each.name: each.annotation for each in typed}
    return cast("Callable[..., None]", wrapper)


def refuse_run_options(options: Options, what: str) -> None:
    """Raises AblateError if options of a run were given where nothing is trained.

    Args:
        what: what is done instead, such as `gate: the verdict on a row`.
    """
    from ablate.errors import AblateError
    from ablate.scheduling.options import Options as RunOptions

    if options != RunOptions(options.runs, options.store):
        raise AblateError(
            f"{what} trains nothing, so options of runs have no effect; leave them out"
        )


def url_of(store: str, runs: Path = DEFAULT_RUNS) -> str:
    from ablate.scheduling.options import Options

    return Options(runs=runs, store=store).url


def place_of(store: str, runs: Path) -> str:
    """What to add to a command so that it finds the same store.

    A password is masked, and a store that the environment names needs no option.
    """
    from ablate.text.masking import masked

    runs_option = f" --runs {shlex.quote(str(runs))}" if runs != DEFAULT_RUNS else ""
    if store and store != os.environ.get(STORE_VARIABLE):
        runs_option += f" --store {shlex.quote(masked(store))}"
    return runs_option


def followed(options: Options) -> Iterator[str]:
    """The commands that show what is logged to other services."""
    runs = options.runs
    if Service.tensorboard in options.log:
        yield f"tensorboard --logdir {runs}/tensorboard"
    if Service.mlflow in options.log and "MLFLOW_TRACKING_URI" not in os.environ:
        yield f"mlflow ui --backend-store-uri sqlite:///{runs}/mlflow.db"
    if Service.wandb in options.log and os.environ.get("WANDB_MODE") == "offline":
        yield f"wandb sync {runs}/wandb/offline-run-*"
