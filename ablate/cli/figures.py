"""What `plot --of` draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablate.errors import AblateError, UnknownName, unknown
from ablate.text import advice


def drawn(
    study: str,
    of: str,
    to: Path,
    *,
    rows: list[int] | None,
    metric: str,
    cost: str,
    published: bool,
    by: str,
    group: str,
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
    from ablate.results.study_charts import BY_EPOCH, OF_SIZES, WITH_METRIC, chart

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
    if of not in OF_SIZES and not results.is_ladder:
        curves = [metric.name for metric in results.results().metrics]
        _check_option("--metric", metric, curves, readers=WITH_METRIC, of=of)
        factors = results.results().factors
        tune = results.results().tune
        known = tune.names if tune and of == "sensitivity" else factors
        _check_option("--by", by, known, readers=("metric", "sensitivity"), of=of)
        _check_option("--group", group, factors, readers=("metric",), of=of)
        missing = sorted(
            set(rows or ()) - {cell.index for cell in results.results().cells}
        )
        if missing:
            raise AblateError(
                f"{study} has no row {', '.join(map(str, missing))}; its rows are in:"
                f" {advice.command('table', study)}"
            )
    made = chart(
        results,
        of,
        rows=rows,
        metric=metric,
        cost=cost,
        published=published,
        by=by,
        group=group,
    )
    save_chart(to, made, FigureStyle(width=width, title=title))


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
