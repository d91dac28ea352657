"""The report of a study as one HTML file that opens from a disk, without a network."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ablate.errors import AblateError
from ablate.records import Status
from ablate.records.stored import Circumstances, DeviceCosts
from ablate.report.charts import Chart, Coordinates
from ablate.report.matplotlib_charts import FigureStyle, note_of, svg
from ablate.report.palette import GREY
from ablate.report.table import Table, html, plain
from ablate.report.wording import (
    error_rate,
    no_difference_sentence,
    policy,
    sentence,
)
from ablate.results import study_charts
from ablate.results.review import command, review, with_parts
from ablate.results.study import ReadStudy, Study
from ablate.store.reader import Reader
from ablate.store.trials import PROVENANCE
from ablate.text import escape
from ablate.text.masking import masked

# The figures of a report below its tables, with their headings.
FIGURES = {
    "scaling": "The metric across sizes",
    "interactions": "Interactions",
    "contributions": "Contributions",
    "sensitivity": "Settings that each row tried",
    "tuning": "Expected best setting",
    "pareto": "Metric versus cost",
    "curves": "Learning curves",
    "importance": "Importance of factors",
    "parallel": "Parallel coordinates",
}
# Those whose words the notes of their table explain.
EXPLAINED_BY_TABLE = ("interactions", "contributions", "importance")
# Narrow, so that its words can be read on a phone.
UNTITLED = FigureStyle(width=5, title=False)
NOTHING = Markup()
# What each trial ran on, in the order of the report.
FACTS = (*(key for key in PROVENANCE if key != "started_at"), "device", "threads")
# Less time is said in seconds.
LEAST_HOURS = 0.05
# Rows of a table that a person reads.
MOST_ROWS = 200


@dataclass(frozen=True)
class Section:
    """A part of the report: a figure, a table, or both.

    Attributes:
        live: whether the figure can be zoomed.
        caption: what a reader of the figure has to know.
        folded: the title under which the table is hidden until a reader wants it.
    """

    heading: str
    figure: Markup = NOTHING
    live: bool = False
    caption: str = ""
    table: Markup = NOTHING
    notes: Sequence[Markup] = ()
    folded: str = ""


def write_report(
    study: Study, to: Path, *, interactive: bool = False, where: str = ""
) -> None:
    """Writes the report of a study: question, claim, verdicts, tables, figures,
    findings, cost, provenance, commands.

    Args:
        interactive: figures that can be zoomed (5 MB more for Plotly's script); else
            still ones.
        where: what commands need to find the store, as ` --runs DIR`.

    Raises:
        UnknownName: there is no such study.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("ablate.report", "templates")
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_finished,
        trim_blocks=False,
    )
    text = environment.get_template("report.html").render(
        _content(ReadStudy(study.name, study.store), interactive, where)
    )
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")


def _finished(value: Any) -> Any:
    """A value for the page: text is escaped, HTML that was generated here is kept as it
    is.
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return escape.html(value)
    return value


def _content(study: Study, interactive: bool, where: str) -> dict[str, Any]:
    results, declared = study.read()
    with Reader(study.store) as reader:
        status = reader.studies.get(study.name)
        spent = reader.costs.by_device(study.name)
        circumstances = reader.trials.circumstances(study.name)
    done = status.by_status.get(Status.COMPLETED, 0)
    trials = sum(status.by_status.values())
    others = "".join(
        f", {number} {state}"
        for state, number in status.by_status.items()
        if state != Status.COMPLETED and number
    )
    verdicts = study.effects()
    margin = declared.criterion.margin
    sentences = []
    for effect in verdicts[:MOST_ROWS]:
        kind = str(effect.verdict).replace(" ", "-")
        sentences.append((kind, sentence(effect, results.metric, margin)))
    pairing = "paired by seed" if results.is_paired else "unpaired"
    again = f"{with_parts(declared)}{where}"
    return {
        "name": study.name,
        "question": results.question,
        "expect": results.expect,
        "source": results.source,
        "state": f"{done} of {trials} trials completed{others}",
        "sentences": sentences,
        "nothing": "the study has only one row.",
        "policy": (
            f"{results.metric.title}: {policy(declared)}. Differences are {pairing}."
            f" {error_rate(results)} The intervals of the verdicts are for all rows at"
            f" once. {no_difference_sentence(results.metric, margin)}"
        ),
        "sections": _sections(study, bool(verdicts), interactive),
        "scripts": Markup("; script-src 'unsafe-inline'") if interactive else "",
        "script": _script() if interactive else Markup(),
        "findings": [
            (finding.name, escape.html_with_code(finding.text), finding.command)
            for finding in review(study.name, study.store, where)
        ],
        "costs": [ELSEWHERE] if results.reported else _costs(spent),
        "provenance": ELSEWHERE if results.reported else _ran_on(circumstances),
        "commands": (
            f"{command(declared, status.file)}{where}\nablate report"
            f" {escape.shell(study.name)}{where}\n"
            + "".join(
                "# trains one of the trials again and compares the results\n"
                f"ablate reproduce {escape.shell(attempt.trial)}{again}\n"
                for attempt in circumstances[:1]
            )
        ),
        "document": masked(results.document),
    }


def _sections(study: Study, compared: bool, interactive: bool) -> list[Section]:
    """Returns the parts of the report, the verdicts first."""
    drawable = study_charts.drawable(study)
    figures = {of: _figured(of, chart, interactive) for of, chart in drawable.items()}
    nothing = Section("")
    made = []
    if "sizes" in figures:
        across = _tabled("Across sizes", study.effects_table("sizes"))
        made.append(_joined(across, figures["sizes"]))
    if compared:
        verdicts = _tabled("Verdicts", study.effects_table())
        figure = figures.get("effects", nothing)
        numbers = "The numbers behind the verdicts"
        made.append(_joined(verdicts, figure, folded=numbers))
    made.append(_tabled("Table", study.results_table()))
    for of, heading in (
        ("images", "Differences on new images"),
        ("controls", "Differences from controls of the same cost"),
        ("tuning", "What tuning changed"),
    ):
        # Some designs have none.
        with contextlib.suppress(AblateError):
            made.append(_tabled(heading, study.effects_table(of)))
    if study_charts.averages(study):
        with contextlib.suppress(AblateError):
            effects = _tabled("Main effects", study.effects_table("factors"))
            made.append(_joined(effects, figures.get("factors", nothing)))
    for of, heading in FIGURES.items():
        if of not in figures:
            continue
        if of in EXPLAINED_BY_TABLE:
            table = _tabled(heading, study.effects_table(of))
            made.append(_joined(table, figures[of]))
        else:
            made.append(replace(figures[of], heading=heading))
    return made


def _tabled(heading: str, table: Table) -> Section:
    return Section(
        heading,
        table=html(table, notes=False),
        notes=[escape.html_with_code(note) for note in table.all_notes],
    )


def _figured(of: str, chart: Chart | Coordinates, interactive: bool) -> Section:
    return Section(
        "",
        figure=_figure(of, chart, interactive),
        live=interactive,
        caption=note_of(chart),
    )


def _joined(table: Section, figure: Section, folded: str = "") -> Section:
    """Returns a section with the table of one and the figure of another."""
    return replace(
        table,
        figure=figure.figure,
        live=figure.live,
        caption=figure.caption,
        folded=folded,
    )


def _figure(of: str, chart: Chart | Coordinates, interactive: bool) -> Markup:
    """Returns a figure that follows the theme of the page, without a title."""
    if not interactive:
        still = svg(chart, UNTITLED)
        return Markup(re.sub('style="[^"]*"', _themed, still))
    from ablate.report.plotly_charts import draw

    untitled = replace(chart, title="")
    if isinstance(untitled, Chart):
        untitled = replace(untitled, note="")
    figure = draw(untitled)
    clear = "rgba(0,0,0,0)"
    figure.update_layout(
        paper_bgcolor=clear, plot_bgcolor=clear, font_color=GREY, margin_t=30
    )
    figure.update_xaxes(gridcolor=f"{GREY}55", zerolinecolor=f"{GREY}55")
    figure.update_yaxes(gridcolor=f"{GREY}55", zerolinecolor=f"{GREY}55")
    # Plotly writes its data into a script of the page, where it writes a less-than sign
    # as \u003c.
    return Markup(
        figure.to_html(include_plotlyjs=False, full_html=False, div_id=f"figure-{of}")
    )


def _themed(style: re.Match[str]) -> str:
    """Returns a style with the colours of the page in place of black and white.

    matplotlib leaves out black where it fills: the style sheet sets it.
    """
    text = style.group().replace("stroke: #000000", "stroke: currentColor")
    return text.replace("#ffffff", "var(--paper)")


def _script() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


# What is known of the training of runs that were trained elsewhere.
ELSEWHERE = "Not known: the runs were trained elsewhere."


def _costs(spent: list[DeviceCosts]) -> list[str]:
    lines = []
    for row in spent:
        several = re.search(r" x([0-9]+)$", row.device)
        kind = "GPU" if row.device.startswith("cuda") else "CPU"
        hours = row.seconds * int(several[1] if several else 1) / 3600
        if hours < LEAST_HOURS:
            time = f"{3600 * hours:.0f} {kind}-seconds"
        else:
            time = f"{hours:.2f} {kind}-hours"
        trials = "1 trial" if row.trials == 1 else f"{row.trials} trials"
        sentence = f"{trials} on {row.device}: {time} of training and testing"
        if row.joules is not None:
            if row.metered == row.epochs:
                part = ""
            else:
                part = f" in {row.metered} of {row.epochs} epochs"
            sentence += f", {row.joules / 3.6e6:.3g} kWh measured on the {kind}s{part}"
        lines.append(sentence)
    return lines or ["No trial has been trained yet."]


def _ran_on(circumstances: list[Circumstances]) -> Markup:
    """One column for each set of circumstances that trials ended in, and how many did."""
    kinds: dict[tuple[Any, ...], int] = {}
    for attempt in circumstances:
        key = tuple(_fact(name, getattr(attempt, name)) for name in FACTS)
        kinds[key] = kinds.get(key, 0) + 1
    headings = [f"{number} trials" for number in kinds.values()]
    # Sets may have equal numbers of trials, and columns need names of their own.
    headings = [
        heading if headings.count(heading) == 1 else f"{heading} ({number})"
        for number, heading in enumerate(headings, 1)
    ]
    data = []
    for fact_number, name in enumerate(FACTS):
        values = [key[fact_number] for key in kinds]
        data.append({"": name, **dict(zip(headings, values, strict=True))})
    return html(plain(data))


def _fact(name: str, value: Any) -> Any:
    """Returns what a person wants to know of a circumstance; SQL has the whole."""
    if name == "commit":
        return str(value)[:10]
    if name == "platform":
        return re.sub(r"-with-glibc[0-9.]+$", "", str(value))
    if name == "gpus":
        return value or "none"
    return value
