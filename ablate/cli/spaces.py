"""Verbs for spaces and their contents: plans, costs, factors, backbones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.busy import busy
from ablate.cli.options import (
    DEFAULT_RUNS,
    CpusOption,
    FileArgument,
    FormatOption,
    RunsOption,
    StoreOption,
    UntilDecidedOption,
    WithOption,
    load_parts,
    url_of,
)
from ablate.cli.output import Format, Steps, busy_note, duration, say, show, tell
from ablate.records import MOST_CLASSES, MOST_SIDE

if TYPE_CHECKING:
    from ablate.pipeline import Preview

# More looks at a study are abbreviated.
MOST_LISTED = 5


def init(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help=(
                "File to write, with or without .yaml. [default: space.yaml, or the"
                " name of the example]"
            ),
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="EXAMPLE",
            help="Copy this example, such as augvit/table3-small.",
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
    """Write a space to start from: a commented one, or a copy of an example.

    The commented space trains in less than a minute on two cores.
    """
    from ablate.cli.init import examples_table, write
    from ablate.errors import AblateError

    if listed:
        if name is not None or example is not None:
            raise AblateError(
                "--list takes no name and no --example; type: ablate init --list"
            )
        show(examples_table(), form.value)
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
    until_decided: UntilDecidedOption = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Say for each trial to train which part of it is new, compared with"
            " the nearest trial in the store.",
        ),
    ] = False,
    own: WithOption = None,
    details: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also print which differences the design finds with 80 % probability.",
        ),
    ] = False,
    form: FormatOption = Format.table,
) -> None:
    """Show what a space would train: its cells, their cost, and the time.

    The table also shows folded and infeasible cells. Nothing is trained.
    """
    from ablate import pipeline, space
    from ablate.cli.tables import plan_table
    from ablate.errors import AblateError, DataError

    options = pipeline.Options(runs, store, cpus=cpus)
    spaces = space.read_sizes(file)
    if details and len(spaces) > 1:
        raise AblateError(
            "--all prints what the seeds of one study find, and this space has several"
            " sizes; leave it out (docs/sizes.md says what several sizes find)"
        )
    if until_decided is not None:
        spaces = [space.until_decided(each, until_decided) for each in spaces]
    with busy("counting costs"):
        previews = pipeline.previews(spaces, options.url, options, file=str(file))
    show(plan_table(*previews), form.value)
    if form == Format.table and len(previews) > 1:
        _print_sizes(previews)
    elif form == Format.table:
        _print_outlook(previews[0], details=details)
    for shown in previews:
        if why:
            for line in pipeline.why_new(shown, options.url):
                # Other formats have stdout to themselves.
                (say if form == Format.table else tell)(line)
        if shown.data_problem:
            raise DataError(shown.data_problem)


def _print_sizes(previews: Sequence[Preview]) -> None:
    """Prints what stands below the table of a plan of several sizes."""
    from ablate.cli.generations import generation_lines
    from ablate.cli.tables import data_line

    if not previews[0].plan.space.network.trainer:
        print(data_line(previews[0].plan.space.data))
    for shown in previews:
        across = shown.plan.space.across
        assert across is not None, "there are several sizes"
        text = _trials_text(shown)
        if shown.later and not shown.known_trials and not shown.to_train:
            text = f"at most {shown.later} trials{_later_time(shown)}, when rows have chosen."
        print(f"{across.size_text}: {text}")
        for line in generation_lines(shown):
            print(line)
    if previews[0].later:
        print(_tuning_text(previews[0]))
    print(_all_sizes(previews))


def _trials_text(shown: Preview) -> str:
    """Returns the trials of a plan and their time, in a sentence."""
    time = ", in an unknown time"
    if shown.seconds is not None:
        time = f", about {duration(shown.seconds)} of training"
    trials = len(shown.plan.trials) - len(shown.shared)
    return (
        f"{trials} trials: {shown.known_trials} known, {len(shown.to_train)} to"
        f" train{time}{busy_note(shown.seconds)}."
    )


def _all_sizes(previews: Sequence[Preview]) -> str:
    """Returns the trials and the time of all sizes, in a sentence."""
    *_, last = previews
    across = last.plan.space.across
    ahead = ""
    if across is not None and across.is_predicted:
        previews = previews[:-1]
        ahead = (
            f" The predicted size ({across.size_text}): {len(last.to_train)} trials, with"
            " --predicted."
        )
    left = sum(len(shown.to_train) for shown in previews)
    seconds = [shown.seconds for shown in previews if shown.seconds is not None]
    time = ", in an unknown time"
    if len(seconds) == len(previews):
        time = f", about {duration(sum(seconds))}"
    later = sum(shown.later for shown in previews)
    more = f", and at most {later} more when rows have chosen" if later else ""
    return f"{len(previews)} sizes: {left} trials to train{time}{more}.{ahead}"


def _print_outlook(shown: Preview, *, details: bool) -> None:
    """Prints what stands below the table of a plan.

    Args:
        details: print the differences that the design finds, too.
    """
    from ablate.cli.generations import generation_lines
    from ablate.cli.power import power_lines
    from ablate.cli.tables import data_line

    if not shown.plan.space.network.trainer:
        print(data_line(shown.plan.space.data))
    print(_trials_text(shown))
    for line in _growth_lines(shown):
        print(line)
    for line in (*power_lines(shown, details=details), *generation_lines(shown)):
        print(line)


def _growth_lines(shown: Preview) -> list[str]:
    """Returns which trials will follow from the results of those in the plan."""
    lines = [_tuning_text(shown)] if shown.later else []
    looks = shown.plan.space.seeds.looks
    if looks is not None:
        assert shown.full_plan is not None, "it has the seeds of all looks"
        lines.append(
            f"Inconclusive rows get more seeds after {_listed(looks.at[:-1])} seeds, up"
            f" to {looks.most} per cell: {len(shown.full_plan.trials)} trials at most."
        )
    if shown.more_cells == 0:
        return lines
    more = "All other cells"
    if shown.more_cells is not None:
        more = f"{shown.more_cells} more cells"
    lines.append(f"{more} will be proposed from the results.")
    strategy = shown.plan.space.strategy
    if strategy is not None and strategy.confirm:
        lines.append(
            f"Then the best cells ({strategy.confirmed_cells}) and row 0 are"
            f" trained on {strategy.confirm} fresh seeds."
        )
    return lines


def _tuning_text(shown: Preview) -> str:
    """Returns what follows when rows have chosen their settings."""
    tune = shown.plan.space.tune
    assert tune is not None
    at = f" at {tune.size_text}" if tune.at else ""
    return (
        f"Each row tries {len(tune.points)} settings{at}. Then it is trained at the best one,"
        f" and at that of row 0: at most {shown.later} trials more{_later_time(shown)}."
    )


def _later_time(shown: Preview) -> str:
    if shown.later_seconds is None:
        return ""
    return f", about {duration(shown.later_seconds)}"


def _listed(numbers: tuple[int, ...]) -> str:
    """Returns numbers in a sentence; of many, the first and the last ones."""
    shown = [str(number) for number in numbers]
    if len(shown) > MOST_LISTED:
        shown = [*shown[:2], "...", shown[-1]]
    return ", ".join(shown)


def cost(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Space (YAML) whose cells are counted.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="One model: a name of `ablate backbones`."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FACTOR=LEVEL",
            help="Level of a factor, with --model; repeatable.",
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            "--image-size",
            min=1,
            max=MOST_SIDE,
            help="Image side in pixels, with --model. [default: that of the model]",
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
            "--timing",
            help="Also measure inference and training steps on this machine.",
        ),
    ] = False,
    operators: Annotated[
        bool, typer.Option("--operators", help="List FLOPs by operator, with --model.")
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Count parameters, FLOPs and activations of the cells of a space, or of one model.

    The files of a built-in data set, such as imagenet, are not needed.
    """
    from ablate.cli import cost_tables
    from ablate.errors import AblateError

    if (file is None) == (model is None):
        raise AblateError(
            "name a space or a model: `ablate cost FILE`, or `ablate cost"
            " --model deit_small_patch16_224`"
        )
    if file is not None:
        if settings or image_size or classes or operators:
            raise AblateError(
                "--set, --image-size, --classes and --operators are for --model only;"
                " the file of a space contains factors and image sizes itself"
            )
        with busy("counting costs"):
            table = cost_tables.space_cost_table(file, url_of(store, runs), timing)
        show(table, form.value)
        return
    assert model is not None
    if operators and timing:
        raise AblateError(
            "--operators and --timing exclude each other; use one at a time"
        )
    architecture = cost_tables.one_architecture(
        model, settings or [], image_size, classes or 1000
    )
    show(
        (
            cost_tables.operators_table(architecture)
            if operators
            else cost_tables.model_cost_table(architecture, timing)
        ),
        form.value,
    )


def verify_costs(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAPER|TABLE]...",
            help="Papers or tables, such as augvit or iffn/table2. [default: all]",
        ),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Count all parameters and FLOPs that the five papers print, and compare.

    The table shows where a printed number differs from the count, and why.
    """
    from ablate.audit.costs_table import verified

    table, unexplained = verified(tables or (), tell)
    show(table, form.value)
    if unexplained:
        raise typer.Exit(1)


def factors(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[FACTOR]", help="Name of a factor. [default: all]"),
    ] = None,
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """List the factors with their levels, papers and claims."""
    from ablate.cli.tables import factors_table

    show(factors_table(name), form.value)


def backbones(
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="[FAMILY]", help="Family to list in full. [default: all families]"
        ),
    ] = None,
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """List the backbones and the factors that each of them supports."""
    from ablate.cli.tables import backbones_table

    with busy("reading the catalogue of models"):
        table = backbones_table(family)
    show(table, form.value)


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Python files with parts of your own.",
            callback=load_parts,
        ),
    ],
    form: FormatOption = Format.table,
) -> None:
    """Check your own parts against the rules that built-in parts follow.

    The exit code is 1 if a part breaks a rule.
    """
    from ablate.contracts.checks_table import checks_table

    table, broken = checks_table(Steps("check"))
    show(table, form.value)
    if broken:
        raise typer.Exit(1)


def schema(
    of: Annotated[
        str,
        typer.Option(
            "--of",
            metavar="ANSWER",
            help="Print the schema of an answer of `ablate mcp`: plan, effects, ...",
        ),
    ] = "",
    own: WithOption = None,
) -> None:
    """Print the JSON Schema of a space, for editors.

    For example: `ablate schema > space.schema.json`. With --of, print the schema of an
    answer of `ablate mcp`. The rows of such an answer are those that `--format json`
    prints.
    """
    import json

    from ablate.errors import UnknownName, unknown

    if not of:
        from ablate.space import json_schema

        print(json.dumps(json_schema(), indent=1))
        return
    from ablate.cli.answers import ANSWERS

    if of not in ANSWERS:
        raise UnknownName(unknown("--of", of, ANSWERS))
    print(json.dumps(ANSWERS[of].model_json_schema(), indent=1))


def doctor(
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Check whether this machine is set up."""
    from ablate.cli.doctor import Check, examine
    from ablate.report.table import Column, tabulate

    findings = examine(
        url_of(store, runs),
        runs,
        lambda what: print(f"checking: {what}", file=sys.stderr, flush=True),
    )
    columns: list[Column[Check]] = [
        Column("what", lambda check: check.what, heading="check"),
        Column(
            "ok",
            lambda check: check.ok,
            heading="result",
            text=lambda check: "ok" if check.ok else "PROBLEM",
        ),
        Column("found", lambda check: check.found, heading="found"),
    ]
    show(tabulate(columns, findings), form.value)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
