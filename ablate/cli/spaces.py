"""Verbs for search spaces, and for what stands in them: plans, costs, factors,
backbones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    CpusOption,
    FileArgument,
    FormatOption,
    RunsOption,
    StoreOption,
    url_of,
)
from ablate.cli.output import Format, duration, show
from ablate.records import MOST_CLASSES, MOST_SIDE


def init(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help=(
                "The file, with or without .yaml. [default: space.yaml, or as the"
                " example]"
            ),
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="EXAMPLE",
            help="Copy an example, as augvit/table3-small.",
        ),
    ] = None,
    listed: Annotated[
        bool,
        typer.Option(
            "--list", help="List the examples with their questions; write nothing."
        ),
    ] = False,
    form: FormatOption = Format.table,
) -> None:
    """Write a search space to start from: a commented one that trains in a minute, or a
    copy of an example.
    """
    from ablate.cli.init import examples_grid, write
    from ablate.errors import AblateError

    if listed:
        if name is not None or example is not None:
            raise AblateError(
                "--list takes no name and no --example; type: ablate init --list"
            )
        show(examples_grid(), form.value)
        return
    file = write(name or "", example or "")
    print(
        f"wrote {file}. Next: ablate plan {quote(str(file))}, then: ablate run"
        f" {quote(str(file))}",
        file=sys.stderr,
    )


def plan(
    file: FileArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    cpus: CpusOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Show what a search space would train: cells, cost, duplicates, impossible cells,
    time.

    Trains nothing.
    """
    from ablate import pipeline, space
    from ablate.cli.grids import plan_grid

    options = pipeline.Options(runs, store, cpus=cpus)
    shown = pipeline.preview(space.read(file), options.url, options)
    show(plan_grid(shown), form.value)
    if form == Format.table:
        known = len(shown.plan.trials) - len(shown.to_train)
        print(
            f"{len(shown.plan.trials)} trials: {known} known, {len(shown.to_train)} to"
            f" train, about {duration(shown.seconds)}."
        )
        if shown.more != 0:
            print(
                f"{'As many as there are' if shown.more is None else f'{shown.more} more cells'}"
                " will be proposed from results."
            )


def cost(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A search space (YAML): the cost of each of its cells.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="One model: timm's name of a ViT or DeiT."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FACTOR=LEVEL",
            help="A factor's level, with --model; repeatable.",
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            "--image-size",
            min=1,
            max=MOST_SIDE,
            help="Side of the image, with --model. [default: the model's]",
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            "--classes",
            min=1,
            max=MOST_CLASSES,
            help="Number of classes, with --model. [default: 1000]",
        ),
    ] = None,
    timing: Annotated[
        bool,
        typer.Option(
            "--timing", help="Measure latency and throughput on this machine too."
        ),
    ] = False,
    operators: Annotated[
        bool, typer.Option("--operators", help="FLOPs by operator, with --model.")
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Parameters, FLOPs and activations of every cell of a space, or of one model.

    Needs no files of a known data set.
    """
    from ablate.cli import grids
    from ablate.errors import AblateError

    if (file is None) == (model is None):
        raise AblateError(
            "name a search space or a model: `ablate cost FILE`, or `ablate cost"
            " --model deit_small_patch16_224`"
        )
    if file is not None:
        if settings or image_size or classes or operators:
            raise AblateError(
                "--set, --image-size, --classes and --operators go with --model; in a"
                " search space, write them in the file"
            )
        show(grids.space_cost_grid(file, url_of(store, runs), timing), form.value)
        return
    assert model is not None
    if operators and timing:
        raise AblateError(
            "--operators and --timing are two questions; ask one at a time"
        )
    architecture = grids.one_architecture(
        model, settings or [], image_size, classes or 1000
    )
    show(
        (
            grids.operators_grid(architecture)
            if operators
            else grids.model_cost_grid(architecture, timing)
        ),
        form.value,
    )


def verify_costs(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAPER|TABLE]...",
            help="Papers or tables, as augvit or iffn/table2. [default: all]",
        ),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Count every printed parameter and FLOP of the five papers again, and say where
    the print differs, and why.
    """
    from ablate.cli.inside import verified

    grid, unexplained = verified(tuple(tables or ()))
    show(grid, form.value)
    if unexplained:
        raise typer.Exit(1)


def factors(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[FACTOR]", help="One factor. [default: all]"),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """What can vary: every factor with its levels, paper and claim."""
    from ablate.cli.grids import factors_grid

    show(factors_grid(name), form.value)


def backbones(
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="[FAMILY]", help="One family, with all its names. [default: all]"
        ),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Which backbones there are, and which factors are defined on them."""
    from ablate.cli.grids import backbones_grid

    show(backbones_grid(family), form.value)


def schema() -> None:
    """The JSON Schema of a search space, for editors: `ablate schema >
    space.schema.json`.
    """
    import json

    from ablate.space import json_schema

    print(json.dumps(json_schema(), indent=1))


def doctor(
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Whether this machine is set up."""
    from ablate.cli.doctor import examine
    from ablate.report.grid import Grid

    findings = examine(
        url_of(store, runs),
        runs,
        lambda what: print(f"checking: {what}", file=sys.stderr, flush=True),
    )
    rows = [
        [finding.what, "ok" if finding.ok else "PROBLEM", finding.found]
        for finding in findings
    ]
    data = [{"what": f.what, "ok": f.ok, "found": f.found} for f in findings]
    show(Grid(["what", "state", "found"], rows, data), form.value)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
