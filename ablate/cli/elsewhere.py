"""The verb for results that were trained elsewhere."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import AllOption, FormatOption
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
    form: FormatOption = Format.table,
    details: AllOption = False,
) -> None:
    """Judge runs that were trained elsewhere: is a difference more than noise?

    What the options do not say is found from the names and values of the columns. If
    they do not settle it, the error lists the candidates.
    """
    from ablate.errors import AblateError
    from ablate.report.forest_text import forest_text
    from ablate.results.elsewhere import judge as judged_runs

    if target is not None and baseline:
        raise AblateError(
            "--target tests the mean of each row by itself; leave --baseline out"
        )
    if target is not None and margin:
        raise AblateError("--margin is for differences from row 0; leave it out")
    if target is None and level is not None:
        raise AblateError("--level is that of --target; add it, as in --target 70")
    judged = judged_runs(
        runs,
        metric=metric,
        direction=direction.value if direction else "",
        seed=seed,
        by=by or (),
        baseline=_levels(baseline or []),
        names=names,
        margin=margin,
        needs_baseline=target is None,
    )
    if target is not None:
        say(judged.sentence)
        show(judged.target_table(target, level or LEVEL), form.value, details=details)
        return
    if form == Format.table:
        say(judged.sentence)
        show(judged.results_table(), form.value)
        print()
        for line in forest_text(judged.effects()):
            print(line)
        print()
    show(judged.effects_table(), form.value, details=details)


def _levels(baseline: list[str]) -> dict[str, str]:
    """Returns the levels of `norm=layer,depth=2`, by factor.

    Raises:
        AblateError: a part has no `=`.
    """
    from ablate.errors import AblateError, shortened

    levels: dict[str, str] = {}
    # A level may have a comma, but what follows the comma between two levels has a `=`.
    parts = [part for each in baseline for part in re.split(r",(?=[^,=]+=)", each)]
    for part in parts:
        name, sign, level = part.partition("=")
        if name.strip() in levels:
            raise AblateError(
                f"--baseline has two levels of {shortened(name.strip())}; write one"
            )
        if not sign:
            raise AblateError(
                f"--baseline {shortened(part)}: write a column and its level, as in"
                " --baseline norm=layer"
            )
        levels[name.strip()] = level.strip()
    return levels
