"""Verbs that show the results of a study, or draw them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    AllOption,
    FormatOption,
    RunsOption,
    StoreOption,
    StudyArgument,
    inches,
    place_of,
    url_of,
)
from ablate.cli.output import Format, say, show, tell
from ablate.records import MOST_WHOLE

# How many lines `ablate logs` shows of each of several trials.
LINES_OF_MANY = 10


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="Study whose trials are listed. [default: list all studies]",
        ),
    ] = None,
    errors: Annotated[
        bool,
        typer.Option(
            "--error-budget",
            help="Show which verdicts stand in the error budget of the store.",
        ),
    ] = False,
    whole: Annotated[
        bool, typer.Option("--all", help="List archived studies, too.")
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Show the progress of studies."""
    from ablate.cli.tables import studies_table, trials_table

    url = url_of(store, runs)
    if whole and (study or errors):
        from ablate.errors import AblateError

        raise AblateError(
            "--all is for the list of studies; leave it out, or type: ablate status --all"
        )
    if errors:
        from ablate.results.project import budget_of, budget_table

        if study:
            from ablate.errors import AblateError

            raise AblateError(
                f"--error-budget is for all studies of the store; leave out {study}"
            )
        show(budget_table(budget_of(url)), form.value)
        return
    if study:
        show(trials_table(study, url), form.value)
        return
    from ablate.store.notes import Notes, notes_file

    hidden = set() if whole else Notes(notes_file(url, runs)).archived()
    show(studies_table(url, hidden), form.value)


def logs(
    target: Annotated[
        str,
        typer.Argument(metavar="STUDY|TRIAL", help="A study, or a trial by its hash."),
    ],
    row: Annotated[
        int | None, typer.Option("--row", min=0, help="Only trials of this row.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Only trials with this seed.")
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            max=MOST_WHOLE,
            help="Show the last lines of each trial. [default: all of a single trial,"
            f" {LINES_OF_MANY} of each of several]",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Show new lines, too, until the trials have ended."
        ),
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Show what trials print: standard output, standard error, epochs and the error at the end.

    A log keeps what a trial printed in all of its attempts, up to the last 10 MB. With
    `--executor inline`, output goes to the terminal and the log has the rest.
    """
    from ablate.pipeline import Options
    from ablate.trained import logs as of_trials

    options = Options(runs, store)
    chosen = of_trials.logs_of(target, options, row, seed)
    several = len(chosen) > 1
    if lines is None and several:
        lines = LINES_OF_MANY

    def print_line(log: of_trials.LogOfTrial, line: str) -> None:
        prefix = f"row {log.row} seed {log.seed} | " if several else ""
        say(f"{prefix}{line}")
        sys.stdout.flush()

    if follow:
        of_trials.follow(chosen, options, lines, print_line)
        return
    for number, log in enumerate(chosen):
        say(f"{chr(10) if number else ''}== {log.title}")
        for line in log.last_lines(lines):
            say(line)


class BoldMeans(StrEnum):
    """Which means of a LaTeX table are bold."""

    decided = "decided"
    best = "best"
    none = "none"


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
            help="Group the rows by the levels of this factor.",
        ),
    ] = "",
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help=(
                "Add a column with the paper's top-1, if the study names the published"
                " table."
            ),
        ),
    ] = False,
    caption: Annotated[
        str,
        typer.Option(
            "--caption",
            metavar="LATEX",
            help="For LaTeX: the caption. [default: the question]",
        ),
    ] = "",
    label: Annotated[
        str,
        typer.Option(
            "--label", metavar="KEY", help="For LaTeX: the label. [default: tab:STUDY]"
        ),
    ] = "",
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            metavar="A,B,...",
            help="For LaTeX: the columns. [default: those whose values differ]",
        ),
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels",
            metavar="COLUMN=LATEX",
            help="For LaTeX: heading of a column or level (COLUMN:LEVEL). Repeatable.",
        ),
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="For LaTeX: span both columns of a page.")
    ] = False,
    bold: Annotated[
        BoldMeans | None,
        typer.Option(
            "--bold",
            help=(
                "For LaTeX: which means are bold. decided: the best one with all that"
                " are not significantly worse, unless these are all. best: the best one."
                " none. [default: decided]"
            ),
        ),
    ] = None,
    details: AllOption = False,
) -> None:
    """Print the table of a study: mean ± sd over seeds, difference from row 0, cost.

    The best mean, and all means that are not significantly worse, are bold, unless
    nothing is decided. With `--format latex`, the table has a caption, a label and
    notes. For example:

    ablate table mine --format latex --labels shortcuts.count='$T$' > table.tex
    """
    from ablate.errors import AblateError
    from ablate.results.study import Study

    stored = Study(study, url_of(store, runs))
    if form is Format.latex:
        from ablate.report.paper_table import PaperStyle, labels_of

        if stored.is_ladder:
            _refuse_style(study, (caption, label, columns, labels, wide, bold, group))
            sys.stdout.write(stored.table("latex"))
            return
        style = PaperStyle(
            labels=labels_of(labels or []),
            columns=tuple(filter(None, map(str.strip, columns.split(",")))),
            caption=caption,
            label=label,
            group=group,
            wide=wide,
            bold="decided" if bold is None else bold.value,
        )
        sys.stdout.write(stored.paper_table(style, published=published))
        return
    only_latex = {
        "--caption": caption,
        "--label": label,
        "--columns": columns,
        "--labels": labels,
        "--wide": wide,
        "--bold": bold,
    }
    for name, value in only_latex.items():
        if value:
            raise AblateError(f"{name} goes with --format latex, not {form.value}")
    table = stored.results_table(published=published, group=group)
    show(table, form.value, details=details)


def _refuse_style(study: str, given: Sequence[object]) -> None:
    """Raises AblateError if options of a paper's table are given for several sizes."""
    from ablate.errors import AblateError

    if any(given):
        raise AblateError(
            f"{study} has several sizes, whose table has no caption, label, group or"
            " columns to choose; leave these options out, or name one of its studies"
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
    images = "images"
    tuning = "tuning"
    sizes = "sizes"


def effects(
    study: StudyArgument,
    kind: Annotated[
        Kind,
        typer.Option(
            "--of",
            help="rows: each row against row 0. controls: each variant against its"
            " control. factors: main effects. interactions: of each pair of factors."
            " contributions: each factor added alone, each factor left out, and Shapley"
            " values. importance: each factor's share of the variance, exact in a"
            " complete grid. images: each row against row 0 on new images. tuning: what"
            " each row has chosen, and what its own settings change. sizes: each row at"
            " each size, and how its effect changes with size.",
        ),
    ] = Kind.rows,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            min=0,
            max=MOST_MARGIN,
            help="Least difference that matters: what no difference means. [default:"
            " that of the study]",
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
    details: AllOption = False,
) -> None:
    """Print the verdict for each row: helps, hurts, no difference or inconclusive.

    Differences are paired by seed and have 95 % intervals.
    """
    from ablate.results.study import Study

    table = Study(study, url_of(store, runs)).effects_table(kind.value, margin)
    show(table, form.value, details=details)


def review(
    study: StudyArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """List what a sceptical referee would object to, with commands that fix it.

    The exit code is 1 if there are findings.
    """
    from ablate.results.review.findings_table import review_table

    table = review_table(study, url_of(store, runs), place_of(store, runs))
    show(table, form.value)
    if table.rows:
        raise typer.Exit(1)


def pareto(
    study: StudyArgument,
    objectives: Annotated[
        list[str] | None,
        typer.Option(
            "--objective",
            metavar="NAME=max|min",
            help=(
                "A metric or a cost, and its direction; repeatable. [default: the"
                " study's objectives if it has several, otherwise metric, flops]"
            ),
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show the hypervolume cell by cell.")
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """List the cells that no other cell dominates, and their hypervolume."""
    from ablate.results.study import Study

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
    differences = "differences"
    importance = "importance"
    parallel = "parallel"
    metric = "metric"
    tuning = "tuning"
    sensitivity = "sensitivity"
    sizes = "sizes"
    scaling = "scaling"


def plot(
    study: StudyArgument,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Figure to write: .svg, .png, .pdf, or .html (interactive).",
        ),
    ],
    of: Annotated[Drawn, typer.Option("--of", help="What to draw.")] = Drawn.effects,
    diagnostic: Annotated[
        str,
        typer.Option(
            "--diagnostic", help="Draw a diagnostic by layer, instead of --of."
        ),
    ] = "",
    rows: Annotated[
        list[int] | None,
        typer.Option(
            "--row",
            help=(
                "For curves, differences and diagnostics: a row of the table; repeatable."
                " [default: all]"
            ),
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help="For curves, differences and metric: one of the study's metrics."
            " [default: that of the study]",
        ),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="FACTOR",
            help="For metric: the factor on the x axis. For sensitivity: the"
            " hyperparameter. [default: the first one]",
        ),
    ] = "",
    group: Annotated[
        str,
        typer.Option(
            "--group",
            metavar="FACTOR",
            help="For metric: draw a line for each level of this factor.",
        ),
    ] = "",
    cost: Annotated[
        str, typer.Option("--cost", help="For pareto: flops, params or activations.")
    ] = "flops",
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="For pareto: draw the paper's values too, if the study names the"
            " published table.",
        ),
    ] = False,
    width: Annotated[
        float | None,
        typer.Option(
            "--width",
            metavar="WIDTH",
            parser=inches,
            help="Width of the figure: a number of inches, or a number with a unit (in, cm,"
            " mm, pt), as in 8.3cm. [default: 7]",
        ),
    ] = None,
    title: Annotated[
        bool,
        typer.Option(
            "--title/--no-title", help="Draw the title; .html files always have it."
        ),
    ] = True,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Draw effects, interactions, the Pareto front, learning curves and their
    differences from row 0, importance, parallel coordinates, a metric over the levels of
    a factor, what tuning gains or how sensitive rows are to a hyperparameter, effects
    (sizes) or the metric (scaling) across sizes, or a diagnostic by layer.
    """
    from ablate.cli.figures import drawn
    from ablate.cli.layers import drawn_layers

    is_styled = width is not None or not title
    if is_styled and (diagnostic or to.suffix == ".html"):
        from ablate.errors import AblateError

        what = "--diagnostic" if diagnostic else ".html"
        raise AblateError(
            "--width and --no-title are for charts in .svg, .png and .pdf, not for"
            f" {what}"
        )
    if diagnostic and (metric or published or by or group or cost != "flops"):
        from ablate.errors import AblateError

        raise AblateError(
            "--metric, --by, --group, --cost and --published are for --of, not for"
            " --diagnostic; leave them out"
        )
    if diagnostic:
        drawn_layers(study, diagnostic, to, rows, url_of(store, runs))
    else:
        drawn(
            study,
            of.value,
            to,
            rows=rows,
            metric=metric,
            cost=cost,
            published=published,
            by=by,
            group=group,
            width=width,
            title=title,
            url=url_of(store, runs),
        )
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
        typer.Option("--interactive", help="Draw interactive figures (5 MB more)."),
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write one HTML file with question, verdicts, tables, figures, findings, cost and
    provenance.

    A browser opens it without an internet connection.
    """
    from ablate.errors import AblateError
    from ablate.results.html_report import write_report
    from ablate.results.study import Study

    file = to or Path(study.replace("/", "-") + ".html")
    if file.suffix != ".html":
        raise AblateError(
            f"{file}: a report is an HTML file; name one like"
            f" {file.parent / ((file.stem or 'report') + '.html')}"
        )
    write_report(
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
            "--host", help="Address to listen on; 0.0.0.0 lets other machines connect."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
    token: Annotated[
        str,
        typer.Option(
            "--token",
            metavar="WORD",
            help=(
                "Token that visitors must have; by default, or with NEW, a new one. A"
                " token that you type here is visible to the other users of the machine,"
                " in the process list, until the server has started."
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
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help=(
                "Another name of this machine under which visitors may open the pages;"
                " can be repeated."
            ),
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser.")
    ] = True,
) -> None:
    """Serve pages to explore studies, live while they run.

    The pages cannot change a result. By default, they are served on this machine only.
    The command prints an address with a token. Only visitors with the token see them.
    """
    from ablate.cli.serve import names_of, serve, token_of

    serve(
        url_of(store, runs),
        place_of(store, runs),
        runs,
        host,
        port,
        names_of(host, allow_host or []),
        token_of(token, token_file),
        browser,
    )
