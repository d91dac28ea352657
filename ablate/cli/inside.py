"""What `verify-costs`, `diagnose` and `plot` print and draw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ablate import escape
from ablate.cli.output import Steps, say, tell
from ablate.errors import AblateError, UnknownName, unknown
from ablate.report.grid import Grid

if TYPE_CHECKING:
    from ablate.pipeline import Options


def verified(wanted: tuple[str, ...]) -> tuple[Grid, int]:
    """Printed against computed costs, and how many differ without a reason."""
    from ablate.cost.verify import verify
    from ablate.pipeline import Costs
    from ablate.published import PAPERS, tables

    costs = Costs({})
    every = tables()
    for name in wanted:
        if name not in every and name not in PAPERS:
            raise UnknownName(unknown("paper or table", name, [*PAPERS, *every]))
    chosen = [table for name, table in every.items() if not wanted or name in wanted or name.partition("/")[0] in wanted]
    rows, data, agree, reasons, unexplained = [], [], 0, dict[str, list[str]](), 0
    for table in chosen:
        if any(row.params or row.flops for row in table.rows):
            tell(f"{table.name} ...")
        for checked in verify(table, costs):
            state = "agrees" if checked.agrees else "differs" if checked.row.reason else "DIFFERS"
            agree += checked.agrees
            unexplained += not checked.explained
            unit = "M" if checked.cost == "params" else "G"
            sign = "+" if checked.printed.startswith("+") else ""
            rows.append(
                [
                    table.name,
                    checked.row.label,
                    f"{checked.cost} ({unit})",
                    checked.printed,
                    f"{checked.computed:{sign}.4g}",
                    state,
                ]
            )
            data.append(
                {
                    "table": table.name,
                    "row": checked.row.label,
                    "cost": checked.cost,
                    "unit": unit,
                    "printed": checked.printed,
                    "computed": checked.computed,
                    "agrees": checked.agrees,
                    "reason": "" if checked.agrees else checked.row.reason,
                    "counted as": checked.row.convention if checked.cost == "FLOPs" else "",
                }
            )
            if not checked.agrees and checked.row.reason:
                told = reasons.setdefault(checked.row.reason, [])
                told += [checked.row.label] if checked.row.label not in told else []
    notes = [
        f"{agree} of {len(rows)} printed numbers agree: params within the last printed digit, FLOPs within it or 1.5 %.",
        *(f"{', '.join(labels)}: {reason}." for reason, labels in reasons.items()),
    ]
    columns = ["table", "row", "cost", "printed", "computed", "state"]
    return Grid(columns, rows, data, frozenset({"printed", "computed"}), "Printed against computed costs", notes), unexplained


def diagnosed(targets: tuple[str, ...], names: tuple[str, ...], images: int, options: Options) -> Iterator[Grid]:
    """Takes diagnostics, and shows them: one grid a study and diagnostic."""
    from ablate import diagnosis, diagnostics
    from ablate.records import Diagnostics
    from ablate.report import layers_grid
    from ablate.study import Study

    chosen = tuple(diagnostics.find(name).name for name in names) or diagnostics.usual()
    looked = diagnosis.diagnose(targets, Diagnostics(chosen, images), options, Steps("trial"))
    tell(f"{looked.trials} trials looked at")
    if looked.without:
        place = options.checkpoints or options.runs / "checkpoints"
        tell(f"{looked.without} trials are unfinished, or have no checkpoint under {place}")
    if not looked.trials:
        raise AblateError("no finished trial has a checkpoint to look into; `ablate run` and `ablate resume` write them")
    for study in looked.studies:
        shown = Study(study, options.url)
        for name in chosen:
            for stored in _stored(shown, name):
                yield layers_grid(stored, diagnostics.find(name).about, shown.layers(stored))


def _stored(study: object, name: str) -> list[str]:
    """The names under which a diagnostic is stored: its own, or that with endings as `.bound`."""
    from ablate.study import Study

    assert isinstance(study, Study)
    return [stored for stored in study.diagnostics() if stored == name or stored.startswith(name + ".")]


def reviewed(study: str, url: str, where: str) -> Grid:
    """A referee's findings."""
    from ablate.review import review

    found = review(study, url, where)
    rows = [[finding.name, finding.text, finding.command] for finding in found]
    data = [{"finding": finding.name, "text": finding.text, "command": finding.command} for finding in found]
    notes = [f"{len(found)} findings."] if found else ["Nothing to object to."]
    return Grid(["finding", "what", "command"], rows, data, title=f"Review of {study}", notes=notes)


def reproduced(trial: str, options: Options) -> bool:
    """Trains a trial again, and prints what came of it; whether it agrees."""
    from ablate.reproduce import reproduce

    found = reproduce(trial, options, Steps("epoch"))
    for name, (before, now) in found.changed.items():
        say(f"{name}: {before or 'unknown'} before, {now or 'unknown'} now")
    told = f"{found.study}, trial {found.trial}: {found.metric} {found.found:.6g}"
    if found.same:
        say(f"{told}: the same in all {found.epochs} epochs, to the last bit.")
        return True
    where = f"from epoch {found.first} on" if found.first else "in its test"
    noise = "" if found.noise is None else f" (two seeds differ by less than {found.noise:.3g} in 99 of 100 cases)"
    verdict = "agrees within the noise of a seed" if found.agrees else "did NOT come out the same"
    say(f"{told}, stored {found.stored:.6g}: differs {where}; {verdict}{noise}.")
    return found.agrees


def drawn(study: str, of: str, to: Path, rows: list[int] | None, metric: str, cost: str, url: str) -> None:
    """Draws a chart to a file."""
    from ablate.drawing import chart
    from ablate.report.figures import FORMS, ending_of, save_chart
    from ablate.study import Study

    ending_of(to, (*FORMS, "html"))
    for option, said, known, reader in (
        ("--metric", metric, ("top1", "top5", "loss", "train_loss"), "curves"),
        ("--cost", cost, ("flops", "params", "activations"), "pareto"),
    ):
        if said and said not in known:
            raise UnknownName(unknown(option, said, known))
        if said not in ("", "flops") and of != reader:
            raise AblateError(f"{option} {said} goes with --of {reader}, not with --of {of}")
    if rows and of != "curves":
        raise AblateError(f"--row goes with --of curves or --diagnostic, not with --of {of}")
    found = Study(study, url)
    missing = sorted(set(rows or ()) - {cell.index for cell in found.results().cells})
    if missing:
        raise AblateError(f"{study} has no row {', '.join(map(str, missing))}: ablate table {escape.shell(study)}")
    save_chart(to, chart(found, of, rows=rows, metric=metric, cost=cost))


def drawn_layers(study: str, diagnostic: str, to: Path, rows: list[int] | None, url: str) -> None:
    """Draws a stored diagnostic; one with endings (measured and bound) in one figure."""
    from ablate import diagnostics
    from ablate.report.figures import save_layers
    from ablate.study import Study

    found = Study(study, url)
    record = diagnostics.find(diagnostic.partition(".")[0])
    stored = _stored(found, diagnostic)
    if not stored:
        raise UnknownName(
            f"{study} has no diagnostic '{diagnostic}' stored; take it with: "
            f"ablate diagnose {escape.shell(study)} --name {record.name}"
        )
    # What was measured comes before its bound.
    ordered = sorted(stored, key=lambda name: (name.endswith(".bound"), name))
    shown = [(name, [line for line in found.layers(name) if rows is None or line.cell in rows]) for name in ordered]
    missing = sorted(set(rows or ()) - {line.cell for _, lines in shown for line in lines})
    if missing or not any(lines for _, lines in shown):
        raise AblateError(
            f"no row {', '.join(map(str, missing))} has the diagnostic {diagnostic}: ablate table {escape.shell(study)}"
        )
    save_layers(to, f"{study}: {record.name.replace('_', ' ')}", record.axis, record.form, shown)
