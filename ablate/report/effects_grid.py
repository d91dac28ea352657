"""Effects as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.records import Level, Looks, StudyResults
from ablate.report.effects import Effect
from ablate.report.factorial import Factorial, Term
from ablate.report.grid import Grid
from ablate.report.table import DIGITS, level_text
from ablate.report.units import Unit, unit_for
from ablate.report.verdicts import Verdict
from ablate.report.wording import (
    UNITS,
    change_text,
    effect_data,
    interval_text,
    verdict_text,
)

INTERVAL = "Δ (95 % interval)"
POOLED = (
    "The noise is taken from all cells together, as if it were alike in all: finer than"
    " the few seeds of one row in `effects`, which assumes nothing of the sort. Where"
    " both speak of one row and differ, quote that of the row."
)


def effects_grid(
    results: StudyResults,
    found: Sequence[Effect],
    margin: float,
    *,
    controls: bool = False,
) -> Grid:
    """One row an effect: what changes, the difference with its interval, the verdict,
    what it costs.
    """
    unit = unit_for(abs(effect.delta_flops or 0) for effect in found)
    flops = f"Δ FLOPs ({unit.letter})"
    rows = [_effect_row(effect, results.metric, unit) for effect in found]
    columns = ["row", "change", "n", INTERVAL, "p (Holm)", flops, "verdict"]
    bold = _decided([effect.verdict for effect in found])
    unit_text = f" in{UNITS[results.metric]}" if UNITS[results.metric] else ""
    against = "its iso-cost control" if controls else "row 0"
    notes = [
        (
            f"Δ {results.metric}{unit_text}:"
            f" mean difference to {against}, seed by seed, with its 95 % interval"
            " (paired t). p: adjusted for all rows (Holm); the verdict is helps or"
            " hurts below 0.05."
        ),
        (
            f"no difference: one of {margin:g}{UNITS[results.metric]} or more is ruled"
            " out (two one-sided tests, 5 %, Holm). inconclusive (N more seeds): N more"
            " seeds give an even chance of a verdict."
        ),
    ]
    data = [effect_data(effect) for effect in found]
    return Grid(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset({"row", "n", INTERVAL, "p (Holm)", flops}),
        title=results.question,
        notes=notes,
        bold=bold,
    )


def _effect_row(effect: Effect, metric: str, unit: Unit) -> list[str]:
    """The texts of one effect."""
    flops = ""
    if effect.delta_flops is not None:
        flops = unit.text(effect.delta_flops, signed=True)
    verdict = verdict_text(effect)
    for state, number in effect.left_out.items():
        verdict += f"; {number} {state}"
    return [
        str(effect.row),
        change_text(effect.changed),
        str(len(effect.seeds)),
        _difference(effect, metric),
        _p(effect.judged.p) if effect.judged else "",
        flops,
        verdict,
    ]


def _difference(effect: Effect, metric: str) -> str:
    if effect.estimate is not None:
        return interval_text(effect.estimate, metric)
    if effect.mean is None:
        return ""
    return f"{effect.mean:+.{DIGITS[metric]}f}"


def terms_grid(
    results: StudyResults, terms: Sequence[Term], margin: float, notes: Sequence[str]
) -> Grid:
    """One row a main effect, an interaction or a contribution."""
    rows = [_term_row(term, results.metric) for term in terms]
    data = [_term_data(term) for term in terms]
    bold = _decided([term.judged.verdict if term.judged else None for term in terms])
    columns = ["effect", "factor", "level", INTERVAL, "p (Holm)", "verdict"]
    told = [
        *notes,
        POOLED,
        (
            f"no difference: one of {margin:g}{UNITS[results.metric]} or more is ruled"
            " out (5 %, Holm)."
        ),
    ]
    return Grid(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset({INTERVAL, "p (Holm)"}),
        title=results.question,
        notes=told,
        bold=bold,
    )


def _decided(verdicts: Sequence[Verdict | None]) -> frozenset[tuple[int, str]]:
    """The cells of a table that are bold: verdicts that say something."""
    return frozenset(
        (row, "verdict")
        for row, verdict in enumerate(verdicts)
        if verdict in (Verdict.HELPS, Verdict.HURTS)
    )


def _term_row(term: Term, metric: str) -> list[str]:
    """The texts of one term."""
    return [
        term.kind,
        " x ".join(term.factors),
        " x ".join(map(level_text, term.levels)),
        interval_text(term.estimate, metric) if term.estimate else "",
        _p(term.judged.p) if term.judged else "",
        _verdict(term),
    ]


def _term_data(term: Term) -> dict[str, Any]:
    """One term in full precision."""
    estimate = term.estimate
    judged = term.judged
    return {
        "kind": term.kind,
        "factor": " x ".join(term.factors),
        "level": " x ".join(map(level_text, term.levels)),
        "effect": estimate.value if estimate else None,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "p": estimate.p if estimate else None,
        "p_holm": judged.p if judged else None,
        "verdict": str(judged.verdict) if judged else None,
    }


def _verdict(term: Term) -> str:
    """Of a factor, never of its absence; of an interaction, whether both together are
    more or less than the sum of each.
    """
    if term.judged is None:
        return "not told apart from other effects"
    if term.kind == "interaction":
        together = {Verdict.HELPS: "better together", Verdict.HURTS: "worse together"}
    else:
        together = {}
    return together.get(term.judged.verdict, str(term.judged.verdict))


def factors_grid(
    results: StudyResults,
    baseline: Mapping[str, Level],
    margin: float,
    looks: Looks | None = None,
    *,
    interactions: bool,
) -> Grid:
    """Main effects or two-factor interactions over all cells."""
    model = Factorial(results, baseline, looks)
    find = model.interactions if interactions else model.main_effects
    if interactions:
        what = "What both levels do together beyond the sum of each alone"
    else:
        what = (
            "Level against the factor's baseline, on average over the levels of the"
            " other factors"
        )
    notes = [
        f"{what}; seeds are blocks, {model.freedom:g} degrees of freedom, sd of one"
        f" training {model.sd:.3g}."
    ]
    if model.additive:
        notes.append(
            "The design cannot tell main effects from interactions: the effects are"
            " right if factors do not interact."
        )
    return terms_grid(results, find(margin, results.direction), margin, notes)


def contributions_grid(
    results: StudyResults,
    baseline: Mapping[str, Level],
    full: Mapping[str, Level],
    margin: float,
    looks: Looks | None = None,
) -> Grid:
    """What each factor adds: alone, left out of the full model, and on average over all
    orders.
    """
    model = Factorial(results, baseline, looks)
    notes = [
        "alone: the baseline with this factor; left out: the full model less the model"
        " without it; shapley: its addition on average over all orders of adding"
        f" factors. Seeds are blocks, {model.freedom:g} degrees of freedom."
    ]
    return terms_grid(
        results, model.contributions(full, margin, results.direction), margin, notes
    )


def _p(value: float) -> str:
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}"
