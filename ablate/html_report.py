"""The report of a study as one HTML file that opens from a disk, without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ablate import escape, study_charts
from ablate.errors import AblateError
from ablate.records import Status
from ablate.report.charts import Chart, Coordinates
from ablate.report.matplotlib_charts import svg
from ablate.report.tables import html, plain
from ablate.report.wording import policy, sentence
from ablate.review import command, review, with_parts
from ablate.store.reader import Reader
from ablate.store.trials import PROVENANCE
from ablate.study import Study

HEADINGS = {
    "effects": "Each row compared with row 0",
    "factors": "Main effects",
    "interactions": "Interactions",
    "contributions": "Contributions",
    "pareto": "Metric versus cost",
    "curves": "Learning curves",
    "importance": "Importance of factors",
    "parallel": "All cells",
}
# Rows of a table that a person reads.
MOST_ROWS = 200


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
        _content(study, interactive, where)
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
        status = reader.study(study.name)
        spent = reader.spent(study.name)
        circumstances = reader.circumstances(study.name)
    done = status.by_status.get(Status.COMPLETED, 0)
    trials = sum(status.by_status.values())
    others = "".join(
        f", {number} {state}"
        for state, number in status.by_status.items()
        if state != Status.COMPLETED and number
    )
    verdicts = study.effects()
    sentences = []
    for effect in verdicts[:MOST_ROWS]:
        kind = str(effect.verdict).replace(" ", "-")
        sentences.append((kind, sentence(effect, results.metric, declared.margin)))
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
            f"{results.metric.title}: {policy(declared)}. Differences are"
            " paired by seed; verdicts are at 5 % for all rows together; the"
            f" margin is {declared.margin:g}."
        ),
        "tables": _tables(study, bool(verdicts)),
        "figures": [
            (HEADINGS[of], _figure(of, chart, interactive), interactive)
            for of, chart in study_charts.drawable(study).items()
        ],
        "scripts": Markup("; script-src 'unsafe-inline'") if interactive else "",
        "script": _script() if interactive else Markup(),
        "findings": review(study.name, study.store, where),
        "costs": _costs(spent),
        "provenance": _ran_on(circumstances),
        "commands": (
            f"{command(declared, status.file)}{where}\nablate report"
            f" {escape.shell(study.name)}{where}\n"
            + "".join(
                f"ablate reproduce {escape.shell(one['trial'])}{again}\n"
                for one in circumstances[:1]
            )
        ),
        "document": results.document,
    }


def _tables(study: Study, compared: bool) -> list[tuple[str, Markup]]:
    made = [("Table", study.results_table())]
    if compared:
        made.append(("Differences from row 0", study.effects_table()))
    more = [
        ("images", "Differences on new images"),
        ("controls", "Differences from controls of the same cost"),
    ]
    more += [("factors", "Main effects")] if study_charts.averages(study) else []
    for of, heading in more:
        try:
            made.append((heading, study.effects_table(of)))
        except AblateError:
            # Its design has none.
            continue
    return [(heading, html(grid)) for heading, grid in made]


def _figure(of: str, chart: Chart | Coordinates, interactive: bool) -> Markup:
    if not interactive:
        return Markup(svg(chart))
    from ablate.report.plotly_charts import draw

    # Plotly writes its data into a script of the page, where it writes a less-than sign
    # as \u003c.
    return Markup(
        draw(chart).to_html(
            include_plotlyjs=False, full_html=False, div_id=f"figure-{of}"
        )
    )


def _script() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def _costs(spent: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in spent:
        several = re.search(r" x([0-9]+)$", row["device"])
        kind = "GPU" if row["device"].startswith("cuda") else "CPU"
        hours = row["seconds"] * int(several[1] if several else 1) / 3600
        told = (
            f"{row['trials']} trials on {row['device']}: {hours:.2f} {kind}-hours of"
            " training and testing"
        )
        if row["metered"]:
            if row["metered"] == row["epochs"]:
                part = ""
            else:
                part = f" in {row['metered']} of {row['epochs']} epochs"
            told += f", {row['joules'] / 3.6e6:.3g} kWh measured on the {kind}s{part}"
        lines.append(told)
    return lines or ["No trial has been trained yet."]


def _ran_on(circumstances: list[dict[str, Any]]) -> Markup:
    """One row for each set of circumstances that trials ended in, and how many did."""
    kinds: dict[tuple[Any, ...], int] = {}
    shown = [key for key in PROVENANCE if key != "started_at"]
    for one in circumstances:
        key = (*(one[name] for name in shown), one["device"], one["threads"])
        kinds[key] = kinds.get(key, 0) + 1
    data = [
        {"trials": n, **dict(zip((*shown, "device", "threads"), key, strict=True))}
        for key, n in kinds.items()
    ]
    return html(plain(data))
