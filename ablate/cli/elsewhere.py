"""The verb for results that were trained elsewhere."""

from __future__ import annotations

import os
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.busy import busy
from ablate.cli.options import (
    DEFAULT_RUNS,
    STORE_VARIABLE,
    AllOption,
    FormatOption,
    RunsOption,
    StoreOption,
    place_of,
)
from ablate.cli.output import Format, say, show
from ablate.records import LEVEL


class Better(StrEnum):
    """Which values of a metric are better."""

    max = "max"
    min = "min"


def judge(
    runs: Annotated[
        Path,
        typer.Argument(
            metavar="RUNS",
            help="Table of runs (.csv, .tsv, .parquet, .json, .jsonl), a folder with a"
            " folder per run (TensorBoard, Lightning, timm), or the SQLite database of"
            " MLflow or Optuna.",
        ),
    ],
    metric: Annotated[
        str, typer.Option("--metric", metavar="COLUMN", help="What is compared.")
    ] = "",
    direction: Annotated[
        Better | None,
        typer.Option(
            "--direction", help="Whether larger or smaller values are better."
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            "--seed", metavar="COLUMN", help="Seeds, which pair runs; several as A,B."
        ),
    ] = "",
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="A column that tells settings apart; repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="COLUMN=LEVEL",
            help="Levels of row 0, with commas between them; repeatable.",
        ),
    ] = None,
    names: Annotated[
        str,
        typer.Option(
            "--names",
            metavar="FORM",
            help="How folders of runs are named, such as '{norm}-{seed}'.",
        ),
    ] = "",
    margin: Annotated[
        float,
        typer.Option("--margin", min=0, help="Least difference that matters."),
    ] = 0.0,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            help="Test whether the mean of each row is better than this number.",
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            "--level",
            min=1e-9,
            max=0.5,
            help="With --target, the probability that any row is wrongly said to be"
            " better. [default: 0.05]",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Store the runs as a study, which all tables, charts and reports can"
            " show.",
        ),
    ] = False,
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="STUDY",
            help="With --keep, the name of the study. [default: that of the file]",
        ),
    ] = "",
    store: StoreOption = "",
    runs_folder: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
    details: AllOption = False,
) -> None:
    """Judge runs that were trained elsewhere: is a difference more than noise?

    What the options do not say is found from the names and values of the columns. If
    they do not settle it, the error lists the candidates.
    """
    from ablate.report.forest_text import forest_text
    from ablate.results.elsewhere import judge as judged_runs
    from ablate.space.typed import pairs_of, parts_of

    if target is not None:
        _refuse_with_target(baseline=baseline, margin=margin, keep=keep)
    else:
        _refuse_without("--target", {"--level": level is not None}, like=" 70")
    if not keep:
        given = {
            "--name": bool(name),
            # The variable may be set for other commands.
            "--store": store not in ("", os.environ.get(STORE_VARIABLE)),
            "--runs": runs_folder != DEFAULT_RUNS,
        }
        _refuse_without("--keep", given)
    parts = [part for text in baseline or () for part in parts_of(text)]
    with busy("reading runs"):
        judged = judged_runs(
            runs,
            metric=metric,
            direction=direction.value if direction else "",
            seed=seed,
            by=by or (),
            baseline=pairs_of(parts, "--baseline"),
            names=names,
            margin=margin,
            needs_baseline=target is None,
        )
    if target is not None:
        say(judged.sentence)
        show(judged.target_table(target, level or LEVEL), form.value, details=details)
        return
    kept = None
    if keep:
        with busy("storing runs"):
            kept = judged.keep(name, runs=runs_folder, store=store)
    shown = kept or judged
    if form == Format.table:
        say(judged.sentence)
        show(shown.results_table(), form.value)
        print()
        for line in forest_text(shown.effects()):
            print(line)
        print()
    show(shown.effects_table(), form.value, details=details)
    if kept is not None and form == Format.table:
        place = place_of(store, runs_folder)
        say(f"Stored as {kept.name}: ablate report {shlex.quote(kept.name)}{place}")


def _refuse_with_target(
    *, baseline: list[str] | None, margin: float, keep: bool
) -> None:
    """Raises AblateError for options that are for differences from row 0."""
    from ablate.errors import AblateError

    for option, is_given in (
        ("--baseline", bool(baseline)),
        ("--margin", bool(margin)),
        ("--keep", keep),
    ):
        if is_given:
            raise AblateError(
                f"--target tests the mean of each row by itself, and {option} is for"
                f" differences from row 0; leave {option} out"
            )


def _refuse_without(needed: str, given: dict[str, bool], like: str = "") -> None:
    """Raises AblateError for options that have no effect without another one."""
    from ablate.errors import AblateError

    for option, is_given in given.items():
        if is_given:
            raise AblateError(
                f"{option} has no effect without {needed}; add {needed}{like}"
            )
