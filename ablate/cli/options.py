"""Options that several verbs have."""

from __future__ import annotations

import os
import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import CallbackParam

from ablate.cli.output import Format
from ablate.records import MOST_AT_ONCE, MOST_WHOLE
from ablate.text import advice


class ExecutorName(StrEnum):
    """How trials run."""

    ray = "ray"
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
    """Records where this command stores its results, for the commands that messages
    suggest.
    """
    said = str(value or "")
    usual = (
        str(parameter.get_default(context) or ""),
        os.environ.get(STORE_VARIABLE) if parameter.name == "store" else None,
    )
    advice.keep(parameter.opts[0], "" if said in usual else said)
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
FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]
ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(
        "--executor",
        help="ray: on all cores; inline: in this process, one trial at a time.",
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
MaxJoulesOption = Annotated[
    float | None,
    typer.Option(
        "--max-joules",
        metavar="JOULES",
        help="Maximum energy of all runs of the study together; energy is counted only on"
        " devices that measure it.",
    ),
]
MaxPriceOption = Annotated[
    float | None,
    typer.Option(
        "--max-price",
        metavar="PRICE",
        help="Highest price of all runs of the study together; needs --device-hour.",
    ),
]
DeviceHourOption = Annotated[
    float | None,
    typer.Option(
        "--device-hour",
        metavar="PRICE",
        help="Price of a GPU for an hour, or of a CPU core if trials use no GPU.",
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
        help="Join a Ray cluster: HOST:PORT, or auto. [default: a private local Ray]",
    ),
]
LogOption = Annotated[
    list[Service] | None,
    typer.Option(
        "--log",
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


def url_of(store: str, runs: Path = DEFAULT_RUNS) -> str:
    from ablate.scheduling.options import Options

    return Options(runs=runs, store=store).url


def place_of(store: str, runs: Path) -> str:
    """What to add to a command so that it finds the same store.

    A password is masked, and a store that the environment names needs no option.
    """
    from ablate.text.masking import masked

    said = f" --runs {shlex.quote(str(runs))}" if runs != DEFAULT_RUNS else ""
    if store and store != os.environ.get(STORE_VARIABLE):
        said += f" --store {shlex.quote(masked(store))}"
    return said
