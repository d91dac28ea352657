"""The charts of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ablate.errors import AblateError, UnknownName, unknown
from ablate.report import charts
from ablate.report.charts import Chart, Coordinates
from ablate.report.factorial import Factorial, Term
from ablate.store.reader import Reader
from ablate.study import Study

KINDS = (
    "effects",
    "factors",
    "interactions",
    "contributions",
    "pareto",
    "curves",
    "importance",
    "parallel",
)
POOLED = ("factors", "interactions", "contributions")


def chart(
    study: Study,
    of: str,
    *,
    rows: Sequence[int] | None = None,
    metric: str = "",
    cost: str = "flops",
) -> Chart | Coordinates:
    """One chart of a study.

    Args:
        of: one of `KINDS`.
        rows: of curves: those of these rows; by default all.
        metric: of curves: top1, top5, loss or train_loss; by default the study's
            metric.
        cost: of pareto: the cost on x.

    Raises:
        UnknownName: there is no such chart.
        AblateError: there is nothing to draw yet, or the study's design cannot tell it.
    """
    if of not in KINDS:
        raise UnknownName(unknown("chart", of, KINDS))
    results, declared = study.read()
    margin, direction = declared.margin, results.direction

    def front() -> Chart:
        found = study.pareto([f"{results.metric}={direction}", f"{cost}=min"])
        return charts.pareto_chart(results, found.data, cost)

    def terms(
        find: Callable[[Factorial], list[Term]], title: str
    ) -> Callable[[], Chart]:
        return lambda: charts.terms_chart(
            results, find(Factorial(results, declared.baseline, declared.looks)), title
        )

    made: dict[str, Callable[[], Chart | Coordinates]] = {
        "effects": lambda: charts.effects_chart(results, study.effects(), margin),
        "factors": terms(
            lambda model: model.main_effects(margin, direction), "Main effects"
        ),
        "interactions": terms(
            lambda model: model.interactions(margin, direction), "Interactions"
        ),
        "contributions": terms(
            lambda model: model.contributions(declared.full, margin, direction),
            "Contributions",
        ),
        "pareto": front,
        "curves": lambda: charts.curves_chart(
            results, curves(study), metric or results.metric, rows
        ),
        "importance": lambda: charts.importance_chart(
            results, study.effects_grid("importance").data
        ),
        "parallel": lambda: charts.coordinates(results),
    }
    return made[of]()


def curves(study: Study) -> dict[int, list[Any]]:
    """By row the epochs of its trials."""
    with Reader(study.store) as reader:
        cells: dict[int, list[str]] = {}
        for trial in reader.trials(study.name):
            cells.setdefault(trial["row"], []).append(trial["trial"])
        known = reader.known(key for keys in cells.values() for key in keys)
    return charts.curves_of(cells, known)


def averages(study: Study) -> bool:
    """Whether effects of factors say more than rows do: in a grid, a fraction or a
    random draw they are averages over cells.
    """
    return study.declared().design.name in (
        "grid",
        "fractional",
        "plackett-burman",
        "random",
    )


def drawable(study: Study) -> dict[str, Chart | Coordinates]:
    """All charts that can be drawn of a study now and that say something of their own."""
    found = {}
    for of in KINDS:
        if of in POOLED and not averages(study):
            continue
        try:
            found[of] = chart(study, of)
        except AblateError:
            continue
    return found
