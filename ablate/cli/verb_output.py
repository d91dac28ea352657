"""What `diagnose`, `review`, `reproduce` and `plot` output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.output import Steps, say, tell
from ablate.errors import AblateError, UnknownName, counted, unknown
from ablate.report.tables import Column, Table, tabulate
from ablate.text import advice

if TYPE_CHECKING:
    from ablate.contracts.check import Outcome
    from ablate.pipeline import Options
    from ablate.results.review.finding import Finding


def diagnosed(
    targets: tuple[str, ...], names: tuple[str, ...], images: int, options: Options
) -> Iterator[Table]:
    """Takes diagnostics, and yields one table per study and stored diagnostic."""
    from ablate import diagnostics
    from ablate.records import Diagnostics
    from ablate.report.layers import layers_table
    from ablate.results.study import Study
    from ablate.trained import diagnosis

    chosen = tuple(diagnostics.find(name).name for name in names) or diagnostics.usual()
    looked = diagnosis.diagnose(
        targets, Diagnostics(chosen, images), options, Steps("trial")
    )
    tell(f"diagnostics of {looked.trials} trials measured")
    if looked.without:
        place = options.checkpoints or options.runs / "checkpoints"
        tell(
            f"{looked.without} trials are unfinished, or have no checkpoint under"
            f" {place}"
        )
    if not looked.trials:
        raise AblateError(
            "no completed trial has a checkpoint, so nothing can be measured; trials keep"
            " their checkpoints unless the space has `keep: none`, or unless `ablate disk"
            " --free` has removed them"
        )
    for study in looked.studies:
        shown = Study(study, options.url)
        for name in chosen:
            for stored in _stored(shown, name):
                yield layers_table(
                    stored, diagnostics.find(name).about, shown.layers(stored)
                )


def _stored(study: object, name: str) -> list[str]:
    """The names under which a diagnostic is stored.

    These are its own name, or that name with endings such as `.bound`.
    """
    from ablate.results.study import Study

    assert isinstance(study, Study)
    return [
        stored
        for stored in study.diagnostics()
        if stored == name or stored.startswith(name + ".")
    ]


def reviewed(study: str, url: str, where: str) -> Table:
    """A referee's findings."""
    from ablate.results.review import review

    findings = review(study, url, where)
    if findings:
        notes = [counted(len(findings), "finding") + "."]
    else:
        notes = ["No findings."]
    return tabulate(
        finding_columns(), findings, title=f"Review of {study}", notes=notes
    )


def finding_columns() -> list[Column[Finding]]:
    """Returns the columns of the table of a referee's findings."""
    return [
        Column("finding", lambda finding: finding.name, heading="finding", kind=str),
        Column(
            "text", lambda finding: finding.text, heading="what", prose=True, kind=str
        ),
        Column(
            "command",
            lambda finding: finding.command,
            heading="command",
            kind=str,
            about="what fixes it",
        ),
    ]


def reproduced(trial: str, options: Options) -> bool:
    """Trains a trial again and prints the comparison. Returns whether both agree."""
    from ablate.trained.reproduce import reproduce

    outcome = reproduce(trial, options, Steps("epoch"))
    for name, (before, now) in outcome.changed.items():
        say(f"{name}: {before or 'unknown'} before, {now or 'unknown'} now")
    what = (
        f"{outcome.study}, trial {outcome.trial}: {outcome.metric} {outcome.found:.6g}"
    )
    if outcome.same:
        say(f"{what}: bit-identical in all {outcome.epochs} epochs.")
        return True
    where = f"from epoch {outcome.first} on" if outcome.first else "in the final test"
    if outcome.noise is None:
        noise = ""
    else:
        noise = (
            f" (two seeds differ by less than {outcome.noise:.3g} in 99 of 100 cases)"
        )
    if outcome.agrees:
        verdict = "agrees within seed noise"
    else:
        verdict = "does NOT agree"
    say(f"{what}, stored {outcome.stored:.6g}: differs {where}; {verdict}{noise}.")
    return outcome.agrees


def drawn(
    study: str,
    of: str,
    to: Path,
    *,
    rows: list[int] | None,
    metric: str,
    cost: str,
    published: bool,
    width: float | None,
    title: bool,
    url: str,
) -> None:
    """Draws a chart to a file."""
    from ablate.report.matplotlib_charts import (
        FORMS,
        FigureStyle,
        ending_of,
        save_chart,
    )
    from ablate.results.study import Study
    from ablate.results.study_charts import BY_EPOCH, chart

    ending_of(to, (*FORMS, "html"))
    _check_option(
        "--cost", cost, ("flops", "params", "activations"), readers=("pareto",), of=of
    )
    if rows and of not in BY_EPOCH:
        raise AblateError(
            f"--row goes with --of {' or '.join(BY_EPOCH)} or --diagnostic, not with"
            f" --of {of}"
        )
    if published and of != "pareto":
        raise AblateError(f"--published goes with --of pareto, not with --of {of}")
    results = Study(study, url)
    curves = [one.name for one in results.results().metrics]
    _check_option("--metric", metric, curves, readers=BY_EPOCH, of=of)
    missing = sorted(set(rows or ()) - {cell.index for cell in results.results().cells})
    if missing:
        raise AblateError(
            f"{study} has no row {', '.join(map(str, missing))}; its rows are in:"
            f" {advice.command('table', study)}"
        )
    made = chart(results, of, rows=rows, metric=metric, cost=cost, published=published)
    save_chart(to, made, FigureStyle(width=width, title=title))


def checked() -> tuple[Table, int]:
    """Runs the checks of all loaded parts; returns a table, and how many failed."""
    import warnings

    from ablate.contracts import checks

    outcomes: list[tuple[str, str, Outcome]] = []
    steps = Steps("check")
    every = list(checks())
    for number, (part, check) in enumerate(every, 1):
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            # Of a part's own code, which the user sees when it trains.
            warnings.simplefilter("ignore")
            outcomes.append((part, check.what, check.outcome()))
        steps(number, len(every))
    results = [outcome.result for _, _, outcome in outcomes]
    broken, refused = results.count("BROKEN"), results.count("refused")
    notes = [f"{len(results)} checks, {f'{broken} broken' if broken else 'all ok'}."]
    if refused:
        notes = [f"{len(results)} checks, {broken} broken, {refused} refused."]
        notes.append(
            "refused: the part does not fit any small network of the check, and says why;"
            " nothing was checked."
        )
    columns: list[Column[tuple[str, str, Outcome]]] = [
        Column("part", lambda each: each[0], heading="part"),
        Column("check", lambda each: each[1], heading="check"),
        Column("ok", lambda each: each[2].result == "ok"),
        Column("result", lambda each: each[2].result, heading="result"),
        Column(
            "why", lambda each: each[2].why, heading="why" if broken or refused else ""
        ),
    ]
    return tabulate(columns, outcomes, notes=notes), broken


def _check_option(
    option: str, value: str, allowed: Sequence[str], *, readers: Sequence[str], of: str
) -> None:
    """Raises if an option has an unknown value, or if the figure does not read it."""
    if value and value not in allowed:
        raise UnknownName(unknown(option, value, allowed))
    # `flops` is the default of --cost, so it need not have been typed.
    if value not in ("", "flops") and of not in readers:
        raise AblateError(
            f"{option} {value} goes with --of {' or '.join(readers)}, not with --of {of}"
        )


def drawn_layers(
    study: str, diagnostic: str, to: Path, rows: list[int] | None, url: str
) -> None:
    """Draws a stored diagnostic; measured values and their bound share a figure."""
    from ablate import diagnostics
    from ablate.report.matplotlib_charts import save_layers
    from ablate.results.study import Study

    results = Study(study, url)
    record = diagnostics.find(diagnostic.partition(".")[0])
    stored = _stored(results, diagnostic)
    if not stored:
        raise UnknownName(
            f"{study} has no diagnostic '{diagnostic}' stored; measure it with: "
            + advice.command("diagnose", study, "--name", record.name)
        )
    # What was measured comes before its bound.
    ordered = sorted(stored, key=lambda name: (name.endswith(".bound"), name))
    shown = []
    having = set()
    for name in ordered:
        lines = results.layers(name)
        if rows is not None:
            lines = [line for line in lines if line.cell in rows]
        shown.append((name, lines))
        having |= {line.cell for line in lines}
    missing = sorted(set(rows or ()) - having)
    if missing or not having:
        raise AblateError(
            f"no row {', '.join(map(str, missing))} has the diagnostic {diagnostic};"
            " the rows are in:"
            f" {advice.command('table', study)}"
        )
    save_layers(to, f"{study}: {record.name.replace('_', ' ')}", record, shown)
