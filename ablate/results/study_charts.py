"""The charts of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ablate.errors import AblateError, UnknownName, unknown
from ablate.records import Space, StudyResults
from ablate.records.stored import TriedSetting
from ablate.report import charts
from ablate.report.across import Size
from ablate.report.charts import Chart, Coordinates
from ablate.report.curves import Curves, curves_chart, curves_of, differences_chart
from ablate.report.effect import Effect
from ablate.report.factorial import Factorial, Term
from ablate.report.levels_chart import levels_chart
from ablate.report.table import Table
from ablate.report.tuning_table import sensitivity_chart, tuning_chart
from ablate.store.reader import Reader
from ablate.text.advice import option

KINDS = (
    "effects",
    "factors",
    "interactions",
    "contributions",
    "pareto",
    "curves",
    "differences",
    "importance",
    "parallel",
    "metric",
    "tuning",
    "sensitivity",
    "sizes",
    "scaling",
)
# Those of which single rows can be drawn.
BY_EPOCH = ("curves", "differences")
WITH_METRIC = (*BY_EPOCH, "metric")
OF_SIZES = ("sizes", "scaling")
POOLED = ("factors", "interactions", "contributions")
# The charts that read an argument.
READERS = {
    "rows": BY_EPOCH,
    "metric": WITH_METRIC,
    "by": ("metric", "sensitivity"),
    "group": ("metric",),
    "cost": ("pareto",),
    "published": ("pareto",),
}


class Drawable(Protocol):
    """What charts read of a study."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> str: ...

    def read(self) -> tuple[StudyResults, Space]: ...

    def declared(self) -> Space: ...

    def effects(self) -> Sequence[Effect]: ...

    def effects_table(self, of: str) -> Table: ...

    @property
    def is_ladder(self) -> bool: ...

    def sizes(self) -> list[Size]: ...

    def measured_ahead(self, sizes: Sequence[Size]) -> list[Effect]: ...

    def tried(self, results: StudyResults) -> Sequence[TriedSetting]: ...

    def pareto(self, objectives: Sequence[str]) -> Table: ...

    def published(self) -> dict[int, float]: ...


def chart(
    study: Drawable,
    of: str,
    *,
    rows: Sequence[int] | None = None,
    metric: str = "",
    cost: str = "flops",
    published: bool = False,
    by: str = "",
    group: str = "",
) -> Chart | Coordinates:
    """Returns one chart of a study.

    Args:
        of: one of `KINDS`.
        rows: for curves and differences: the rows to draw; by default all.
        metric: for curves, differences and metric: one of the study's metrics; by
            default the one by which it compares.
        cost: for pareto: the cost on the x axis.
        published: for pareto: also draw the values that the paper prints.
        by, group: for metric: the factor on the x axis, and the factor of which each
            level is a line. For sensitivity: the hyperparameter on the x axis.

    Raises:
        UnknownName: there is no such chart, metric or factor.
        AblateError: there is nothing to draw yet, the study's design does not
            determine it, or the chart does not read an argument.
    """
    if of not in KINDS:
        raise UnknownName(unknown("chart", of, KINDS))
    given = {
        "rows": rows is not None,
        "metric": bool(metric),
        "by": bool(by),
        "group": bool(group),
        "cost": cost != "flops",
        "published": published,
    }
    for name, readers in READERS.items():
        if given[name] and of not in readers:
            raise AblateError(
                f"{name} is for {' and '.join(readers)}, not for {of}; leave it out"
            )
    if of in OF_SIZES or (of == "effects" and study.is_ladder):
        return _chart_of_sizes(study, of)
    results, declared = study.read()
    by_name = {known.name: known for known in results.metrics}
    if metric and metric not in by_name:
        raise UnknownName(unknown("metric", metric, by_name))
    measured = by_name.get(metric or "", results.metric).measured
    if of == "metric" and not by:
        raise AblateError(
            f"the chart of a metric needs a factor: {option('by')} FACTOR, one of"
            f" {', '.join(results.factors)}"
        )
    margin, direction = declared.criterion.margin, results.direction

    def front() -> Chart:
        front = study.pareto([f"{results.metric.name}={direction}", f"{cost}=min"])
        printed = study.published() if published else None
        return charts.pareto_chart(results, front.data, cost, printed)

    def terms(
        find: Callable[[Factorial], list[Term]], title: str
    ) -> Callable[[], Chart]:
        def chart() -> Chart:
            model = Factorial(results, declared.factors.baseline)
            return charts.terms_chart(
                results, find(model), title, by_seed=model.by_seed
            )

        return chart

    made: dict[str, Callable[[], Chart | Coordinates]] = {
        "effects": lambda: charts.effects_chart(results, study.effects()),
        "factors": terms(
            lambda model: model.main_effects(margin, direction), "Main effects"
        ),
        "interactions": terms(
            lambda model: model.interactions(margin, direction), "Interactions"
        ),
        "contributions": terms(
            lambda model: model.contributions(declared.factors.full, margin, direction),
            "Contributions",
        ),
        "pareto": front,
        "curves": lambda: curves_chart(results, curves(study), measured, rows),
        "differences": lambda: differences_chart(
            results, curves(study), measured, rows
        ),
        "importance": lambda: charts.importance_chart(
            results, study.effects_table("importance").data
        ),
        "parallel": lambda: charts.coordinates(results),
        "metric": lambda: levels_chart(
            results,
            final_values(study, metric or results.metric.name),
            metric or results.metric.name,
            by,
            group,
        ),
        "tuning": lambda: tuning_chart(results, study.tried(results)),
        "sensitivity": lambda: sensitivity_chart(results, study.tried(results), by),
    }
    return made[of]()


def _chart_of_sizes(study: Drawable, of: str) -> Chart:
    """Returns a chart of all sizes of a ladder."""
    from ablate.report.across_table import across_chart, scaling_chart

    sizes = study.sizes()
    if of == "scaling":
        return scaling_chart(sizes, sizes[0].margin)
    return across_chart(sizes, sizes[0].margin, study.measured_ahead(sizes))


def curves(study: Drawable) -> Curves:
    """Returns the epochs of the trials by row and seed."""
    with Reader(study.store) as reader:
        trials = reader.trials.of(study.name)
        known = reader.trials.known(trial.trial for trial in trials)
    return curves_of(trials, known)


def final_values(study: Drawable, metric: str) -> dict[int, dict[int, float]]:
    """Returns the final values of a metric by row and seed, of completed trials."""
    with Reader(study.store) as reader:
        metrics = {m.name: m for m in reader.studies.results(study.name).metrics}
        if metric not in metrics:
            return {}
        return reader.studies.values(study.name, metrics[metric])


def averages(study: Drawable) -> bool:
    """Whether effects of factors say more than rows do.

    In a grid, a fraction or a random draw they are averages over cells.
    """
    return study.declared().design.name in (
        "grid",
        "fractional",
        "plackett-burman",
        "random",
    )


def drawable(study: Drawable) -> dict[str, Chart | Coordinates]:
    """Returns all charts that can be drawn of a study now and that add information."""
    drawn = {}
    for of in KINDS:
        # Differences say no more than curves and effects do.
        if of in ("differences", "metric") or (of in POOLED and not averages(study)):
            continue
        try:
            drawn[of] = chart(study, of)
        except AblateError:
            continue
    return drawn
