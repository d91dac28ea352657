"""Verbs that read the store, and show or write what is in it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate import escape
from ablate.cli.options import (
    DEFAULT_RUNS,
    CheckpointsOption,
    FormatOption,
    RunsOption,
    StoreOption,
    StudyArgument,
    place_of,
    url_of,
)
from ablate.cli.output import Format, show, tell


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="One study, trial by trial. [default: all studies]"
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """How far studies are."""
    from ablate.cli.grids import studies_grid, trials_grid

    show(
        (
            trials_grid(study, url_of(store, runs))
            if study
            else studies_grid(url_of(store, runs))
        ),
        form.value,
    )


def table(
    study: StudyArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
    group: Annotated[
        str,
        typer.Option(
            "--group",
            metavar="FACTOR",
            help="Rows of equal levels of it stand together.",
        ),
    ] = "",
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help=(
                "The paper's top-1 in a column of its own, for a study that names its"
                " table."
            ),
        ),
    ] = False,
) -> None:
    """The table of a study: mean ± sd over seeds, difference to the first row, cost;
    the best in bold.
    """
    from ablate.study import Study

    show(
        Study(study, url_of(store, runs)).grid(published=published, group=group),
        form.value,
    )


# More than any metric can differ by; an infinite margin would call everything the same.
MOST_MARGIN = 1e6


class Kind(StrEnum):
    """Effects of what."""

    rows = "rows"
    controls = "controls"
    factors = "factors"
    interactions = "interactions"
    contributions = "contributions"
    importance = "importance"


def effects(
    study: StudyArgument,
    kind: Annotated[
        Kind,
        typer.Option(
            "--of",
            help=(
                "rows: each against the first; controls: each against the baseline of"
                " its cost; factors: main effects; "
                "interactions: of two factors; contributions: alone, left out, Shapley;"
                " importance: for searches."
            ),
        ),
    ] = Kind.rows,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            min=0,
            max=MOST_MARGIN,
            help="Least difference that counts. [default: the study's]",
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """What helps, what hurts, what makes no difference, and what cannot be told yet:
    paired over seeds, with intervals.
    """
    from ablate.study import Study

    show(Study(study, url_of(store, runs)).effects_grid(kind.value, margin), form.value)


def review(
    study: StudyArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """What a sceptical referee would object to, each with the command that mends it.

    Ends with 1 where there is something.
    """
    from ablate.cli.inside import reviewed

    grid = reviewed(study, url_of(store, runs), place_of(store, runs))
    show(grid, form.value)
    if grid.rows:
        raise typer.Exit(1)


def pareto(
    study: StudyArgument,
    objectives: Annotated[
        list[str] | None,
        typer.Option(
            "--objective",
            metavar="NAME=max|min",
            help="Repeatable. [default: the study's; of a design: its metric, flops]",
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="The hypervolume, cell by cell.")
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Which cells no other cell beats in every respect, and the hypervolume that they
    cover.
    """
    from ablate.study import Study

    show(
        Study(study, url_of(store, runs)).pareto(objectives or (), history=history),
        form.value,
    )


class Drawn(StrEnum):
    """What is drawn."""

    effects = "effects"
    factors = "factors"
    interactions = "interactions"
    contributions = "contributions"
    pareto = "pareto"
    curves = "curves"
    importance = "importance"
    parallel = "parallel"


def plot(
    study: StudyArgument,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Figure to write: .svg, .png, .pdf, or .html to zoom in.",
        ),
    ],
    of: Annotated[Drawn, typer.Option("--of", help="What to draw.")] = Drawn.effects,
    diagnostic: Annotated[
        str,
        typer.Option("--diagnostic", help="Instead: a stored diagnostic, by layer."),
    ] = "",
    rows: Annotated[
        list[int] | None,
        typer.Option(
            "--row",
            help=(
                "Of curves and diagnostics: a row of the table; repeatable. [default:"
                " all]"
            ),
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help="Of curves: top1, top5, loss or train_loss. [default: the study's]",
        ),
    ] = "",
    cost: Annotated[
        str, typer.Option("--cost", help="Of pareto: flops, params or activations.")
    ] = "flops",
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Draw effects, interactions, the Pareto front, learning curves, importance,
    parallel coordinates, or a diagnostic by layer.
    """
    from ablate.cli.inside import drawn, drawn_layers

    if diagnostic:
        drawn_layers(study, diagnostic, to, rows, url_of(store, runs))
    else:
        drawn(study, of.value, to, rows, metric, cost, url_of(store, runs))
    tell(f"wrote {to}")


def report(
    study: StudyArgument,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="HTML file to write. [default: STUDY.html]"
        ),
    ] = None,
    interactive: Annotated[
        bool,
        typer.Option("--interactive", help="Figures that can be zoomed (5 MB more)."),
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write one HTML file with question, verdicts, tables, figures, findings, cost and
    provenance.

    It opens without a network.
    """
    from ablate.errors import AblateError
    from ablate.page import write_page
    from ablate.study import Study

    file = to or Path(study.replace("/", "-") + ".html")
    if file.suffix != ".html":
        raise AblateError(
            f"{file}: a report is an HTML file; name one like"
            f" {file.parent / ((file.stem or 'report') + '.html')}"
        )
    write_page(
        Study(study, url_of(store, runs)),
        file,
        interactive=interactive,
        where=place_of(store, runs),
    )
    tell(f"wrote {file}")


def dashboard(
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="Address to listen on; others than loopback need --token."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
    token: Annotated[
        str,
        typer.Option(
            "--token",
            metavar="WORD",
            help=(
                "Ask visitors for it; NEW makes one up. Others see it in the process"
                " list."
            ),
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Read the token from a file; or set ABLATE_TOKEN.",
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")
    ] = True,
) -> None:
    """Pages to explore studies, live while they run.

    Reads only, and listens on this machine only.
    """
    from ablate.cli.serve import serve, token_of

    serve(
        url_of(store, runs),
        place_of(store, runs),
        host,
        port,
        token_of(token, token_file),
        browser,
    )


def query(
    statement: Annotated[
        str,
        typer.Argument(
            metavar="SQL",
            help="One SELECT over the tables and views; docs/sql.md lists them.",
        ),
    ],
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Ask the store in SQL. Nothing can be written."""
    from ablate.errors import AblateError
    from ablate.report.grid import Grid, plain
    from ablate.store.reader import Reader

    with Reader(url_of(store, runs)) as reader:
        columns, rows = reader.query(statement)
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise AblateError(
            f"the query gives the column '{twice[0]}' twice; name them apart with AS"
        )
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    show(plain(data) if data else Grid(columns, [], []), form.value)


class Freeable(StrEnum):
    """Checkpoints that can be freed."""

    finished = "finished"
    unused = "unused"
    other_stores = "other-stores"


def disk(
    free: Annotated[
        list[Freeable] | None,
        typer.Option(
            "--free",
            help=(
                "Remove the checkpoints of this kind; repeatable. Results stay in the"
                " store."
            ),
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    checkpoints: CheckpointsOption = "",
    form: FormatOption = Format.table,
) -> None:
    """Show what checkpoints occupy, and free what no result needs.

    Unfinished trials of this store keep theirs.
    """
    from ablate import disk as on_disk
    from ablate.cli.grids import disk_grid
    from ablate.pipeline import Options
    from ablate.report.units import size_text

    options = Options(runs, store, checkpoints=checkpoints)
    if free:
        freed = on_disk.free(options, [kind.value for kind in free])
        tell(f"freed {size_text(freed.size)} in {freed.folders} folders")
        if freed.busy:
            tell(f"{freed.busy} folders were left: a process holds them")
    show(disk_grid(on_disk.usage(options), place_of(store, runs)), form.value)


def export(
    study: StudyArgument,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="One row a trial: .parquet, .csv or .json.",
            show_default=False,
        ),
    ] = None,
    optuna: Annotated[
        str,
        typer.Option(
            "--optuna",
            metavar="URL",
            help="Or the cells, to an Optuna storage, as sqlite:///optuna.db.",
        ),
    ] = "",
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write a study's trials to a file for pandas and others, or its cells to Optuna
    and its dashboard.
    """
    from ablate.errors import AblateError
    from ablate.study import Study

    if (to is None) == (not optuna):
        raise AblateError(
            f"say where to: ablate export {escape.shell(study)} --to"
            f" {escape.shell(study.replace('/', '-'))}.parquet, or --optuna"
            " sqlite:///optuna.db"
        )
    found = Study(study, url_of(store, runs))
    if to is not None:
        tell(f"wrote {found.export(to)} trials to {to}")
        return
    written = found.export_optuna(optuna)
    tell(f"wrote {written} cells. Look at them with: optuna-dashboard {optuna}")


def import_(
    other: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="The other store: a database URL or SQLite file."
        ),
    ],
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]...", help="Which studies. [default: all]"),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Take over studies of another store: what is the same trial there and here is one
    trial, and keeps its result here.
    """
    from ablate.store.writer import Writer

    with Writer(url_of(store, runs)) as writer:
        found = writer.take(other, studies or ())
    told = ", ".join(found.studies) or "no new study"
    tell(
        f"{told}: {found.trials} trials with a result are new here, {found.known} were"
        " known."
    )
