"""The SQL views that people query.

trial_results   one row per trial: status, final metrics and cost, of all studies
study_results   one row per study, cell and seed, with the trial's results and cost
epoch_results   one row per trial and epoch, with the metrics of classification
metric_results  one row per study, cell, seed and metric: any task, any trainer
layer_results   one row per study, cell, seed, epoch, diagnostic and layer
results_STUDY   one study, wide: a column for each factor, metric and cost
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from ablate.records import (
    Across,
    Level,
    Metric,
    Status,
    Tune,
    column_of,
    is_number,
    level_text,
)
from ablate.tasks import classification

NAMES = tuple(metric.name for metric in classification.METRICS)


def _value(table: str, condition: str, name: str) -> str:
    """Returns a lookup of one metric by the primary key."""
    literal = name.replace("'", "''")
    quoted = name.replace('"', '""')
    return (
        f"(SELECT m.value FROM {table} m WHERE {condition} AND m.name = '{literal}') AS"
        f' "{quoted}"'
    )


def _final(metrics: Iterable[Metric]) -> str:
    """Returns a column for the final value of each metric of the trial `t`."""
    return ",\n       ".join(
        _mean_of_last(metric)
        if metric.of
        else _value("trial_metrics", "m.trial_hash = t.hash", metric.name)
        for metric in metrics
    )


def _mean_of_last(metric: Metric) -> str:
    """Returns a lookup of the mean of a metric over the last epochs."""
    literal = metric.of.replace("'", "''")
    return (
        "(SELECT AVG(m.value) FROM epoch_metrics m WHERE m.trial_hash = t.hash AND"
        f" m.name = '{literal}' AND m.epoch > t.selected_epoch - {metric.over} AND"
        f" m.epoch <= t.selected_epoch AND t.status = '{Status.COMPLETED}') AS"
        f' "{metric.name}"'
    )


_OF_EPOCH = ",\n       ".join(
    _value("epoch_metrics", "m.trial_hash = e.trial_hash AND m.epoch = e.number", name)
    for name in NAMES
)
# A cost of 0 was not counted.
COSTS = ", ".join(
    f"NULLIF(a.{name}, 0) AS {name}"
    for name in ("params", "flops", "flops_paper", "activations")
)
# 1: a search chose the row by this seed. A mean over all seeds would favour the row.
_CHOSE = "CASE WHEN ct.chose THEN 1 ELSE 0 END AS chose"
_SHOWN = ", ".join(f"r.{name}" for name in NAMES)

TRIAL_RESULTS = f"""
CREATE VIEW trial_results AS
SELECT t.hash AS trial, t.status, t.seed, t.epochs, t.epochs_done,
       {_final(classification.METRICS)}, t.seconds,
       {COSTS}, a.backbone,
       t.architecture_hash AS architecture
FROM trials t JOIN architectures a ON a.hash = t.architecture_hash
"""

STUDY_RESULTS = f"""
CREATE VIEW study_results AS
SELECT s.name AS study, c.number AS cell, c.role, ct.seed, {_CHOSE}, r.trial, r.status,
       r.epochs, r.epochs_done, {_SHOWN}, r.seconds,
       r.params, r.flops, r.flops_paper, r.activations
FROM studies s
JOIN cells c ON c.study_id = s.id
JOIN cell_trials ct ON ct.cell_id = c.id
JOIN trial_results r ON r.trial = ct.trial_hash
"""

EPOCH_RESULTS = f"""
CREATE VIEW epoch_results AS
SELECT e.trial_hash AS trial, e.number AS epoch,
       {_OF_EPOCH}, e.lr, e.seconds, e.joules
FROM epochs e
"""

METRIC_RESULTS = f"""
CREATE VIEW metric_results AS
SELECT s.name AS study, c.number AS cell, c.role, ct.seed, {_CHOSE}, m.trial_hash AS trial,
       m.name AS metric, m.value
FROM studies s
JOIN cells c ON c.study_id = s.id
JOIN cell_trials ct ON ct.cell_id = c.id
JOIN trial_metrics m ON m.trial_hash = ct.trial_hash
"""

LAYER_RESULTS = """
CREATE VIEW layer_results AS
SELECT s.name AS study, c.number AS cell, c.role, ct.seed, d.trial_hash AS trial,
       d.epoch, d.name AS diagnostic, d.layer, d.value, d.numbers
FROM studies s
JOIN cells c ON c.study_id = s.id
JOIN cell_trials ct ON ct.cell_id = c.id
JOIN diagnostics d ON d.trial_hash = ct.trial_hash AND d.layer >= 0
"""

STATIC = {
    "trial_results": TRIAL_RESULTS,
    "study_results": STUDY_RESULTS,
    "epoch_results": EPOCH_RESULTS,
    "metric_results": METRIC_RESULTS,
    "layer_results": LAYER_RESULTS,
}


def results_view_name(study: str) -> str:
    """Returns `results_` and the study's name in letters, digits and underscores."""
    return "results_" + re.sub(r"[^a-z0-9]+", "_", study.lower()).strip("_")


def results_view(
    name: str,
    study_id: int,
    factors: Mapping[str, bool],
    metrics: Iterable[Metric],
    tune: Tune | None,
    across: Across | None,
    *,
    confirms: bool,
) -> str:
    """Returns the statement that creates a study's wide view; see `results_query`."""
    view = name.replace('"', '""')
    query = results_query(study_id, factors, metrics, tune, across, confirms=confirms)
    return f'CREATE VIEW "{view}" AS {query}'


def _literal(level: Level) -> str:
    """Returns a level in SQL: a number as it is, anything else as text."""
    if is_number(level) and math.isfinite(level):
        return repr(level)
    text = level_text(level).replace("'", "''")
    return f"'{text}'"


def _chosen(tune: Tune, name: str) -> str:
    """Returns a column for the level of a hyperparameter that a trial's row has chosen."""
    levels = [point.get(name) for point in tune.points]
    are_numbers = all(is_number(level) and math.isfinite(level) for level in levels)
    cases = []
    for number, level in enumerate(levels):
        literal = repr(level) if are_numbers else _literal(level_text(level))
        cases.append(f"WHEN {number} THEN {literal}")
    column = column_of(name).replace('"', '""')
    return f'(CASE ct.setting {" ".join(cases)} END) AS "{column}"'


def results_query(
    study_id: int,
    factors: Mapping[str, bool],
    metrics: Iterable[Metric],
    tune: Tune | None = None,
    across: Across | None = None,
    *,
    confirms: bool = False,
) -> str:
    """Returns the query of a study's wide view.

    A factor that the model does not read in a cell is NULL there.

    Args:
        factors: the factors in their order; True if all levels of a factor are numbers,
            so that its column is numeric.
        metrics: what training measured.
        tune: the nuisance hyperparameters, which get a column each.
        across: the size of the study, which gets a column. So the views of all sizes
            have the same columns, for UNION ALL.
        confirms: whether the study confirms rows on fresh seeds, which adds a column.
    """
    columns = []
    if across is not None:
        column = column_of(across.axis).replace('"', '""')
        columns.append(f'{_literal(across.size)} AS "{column}"')
    for factor, numeric in factors.items():
        literal = factor.replace("'", "''")
        quoted = column_of(factor).replace('"', '""')
        column = "number" if numeric else "text"
        # A lookup by primary key, without grouping or joining: the first rows of a
        # large study appear at once.
        level = (
            f"SELECT l.{column} FROM levels l WHERE l.cell_id = c.id AND l.factor ="
            f" '{literal}' AND l.read"
        )
        columns.append(f'({level}) AS "{quoted}"')
    if tune is not None and tune.points:
        columns += [_chosen(tune, name) for name in tune.names]
    # A study that was never planned has no levels.
    wide = "".join(f"{column},\n       " for column in columns)
    results = f"{_final(metrics)}, t.seconds, t.epochs, t.epochs_done"
    return f"""
SELECT c.number AS cell, c.role, ct.seed, {f"{_CHOSE}, " if confirms else ""}t.status,
       {wide}{results}, {COSTS}, t.hash AS trial
FROM cells c
JOIN cell_trials ct ON ct.cell_id = c.id
JOIN trials t ON t.hash = ct.trial_hash
JOIN architectures a ON a.hash = t.architecture_hash
WHERE c.study_id = {study_id}
"""
