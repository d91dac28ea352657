"""Effects as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablate.records import Level, Looks, StudyResults
from ablate.report.effects import Effect
from ablate.report.factorial import Factorial, Term
from ablate.report.grid import Grid
from ablate.report.table import DIGITS, level_text
from ablate.report.units import unit_for
from ablate.report.verdicts import Verdict
from ablate.report.wording import UNITS, change_text, effect_data, interval_text, verdict_text

INTERVAL = "Δ (95 % interval)"
POOLED = (
    "The noise is taken from all cells together, as if it were alike in all: finer than the few seeds of one row in `effects`, "
    "which assumes nothing of the sort. Where both speak of one row and differ, quote that of the row."
)


def effects_grid(results: StudyResults, found: Sequence[Effect], margin: float, *, controls: bool = False) -> Grid:
    """One row an effect: what changes, the difference with its interval, the verdict, what it costs."""
    unit = unit_for(abs(effect.delta_flops or 0) for effect in found)
    flops = f"Δ FLOPs ({unit.letter})"
    rows = [
        [
            str(effect.row),
            change_text(effect.changed),
            str(len(effect.seeds)),
            _difference(effect, results.metric),
            _p(effect.judged.p) if effect.judged else "",
            "" if effect.delta_flops is None else unit.text(effect.delta_flops, signed=True),
            verdict_text(effect) + "".join(f"; {number} {state}" for state, number in effect.left_out.items()),
        ]
        for effect in found
    ]
    columns = ["row", "change", "n", INTERVAL, "p (Holm)", flops, "verdict"]
    bold = frozenset((n, "verdict") for n, e in enumerate(found) if e.verdict in (Verdict.HELPS, Verdict.HURTS))
    against = "its iso-cost control" if controls else "row 0"
    notes = [
        f"Δ {results.metric}{UNITS[results.metric] and ' in' + UNITS[results.metric]}: mean difference to {against}, seed by "
        "seed, with its 95 % interval (paired t). p: adjusted for all rows (Holm); the verdict is helps or hurts below 0.05.",
        f"no difference: one of {margin:g}{UNITS[results.metric]} or more is ruled out (two one-sided tests, 5 %, Holm). "
        "inconclusive: so many more seeds would as likely as not bring a verdict.",
    ]
    data = [effect_data(effect) for effect in found]
    return Grid(columns, rows, data, frozenset({"row", "n", INTERVAL, "p (Holm)", flops}), results.question, notes, bold)


def _difference(effect: Effect, metric: str) -> str:
    if effect.estimate is not None:
        return interval_text(effect.estimate, metric)
    return "" if effect.mean is None else f"{effect.mean:+.{DIGITS[metric]}f}"


def terms_grid(results: StudyResults, terms: Sequence[Term], margin: float, notes: Sequence[str]) -> Grid:
    """One row a main effect, an interaction or a contribution."""
    rows = [
        [
            term.kind,
            " x ".join(term.factors),
            " x ".join(map(level_text, term.levels)),
            interval_text(term.estimate, results.metric) if term.estimate else "",
            _p(term.judged.p) if term.judged else "",
            _verdict(term),
        ]
        for term in terms
    ]
    data = [
        {
            "kind": term.kind,
            "factor": " x ".join(term.factors),
            "level": " x ".join(map(level_text, term.levels)),
            "effect": term.estimate.value if term.estimate else None,
            "low": term.estimate.low if term.estimate else None,
            "high": term.estimate.high if term.estimate else None,
            "p": term.estimate.p if term.estimate else None,
            "p_holm": term.judged.p if term.judged else None,
            "verdict": str(term.judged.verdict) if term.judged else None,
        }
        for term in terms
    ]
    bold = frozenset(
        (n, "verdict") for n, t in enumerate(terms) if t.judged and t.judged.verdict in (Verdict.HELPS, Verdict.HURTS)
    )
    columns = ["effect", "factor", "level", INTERVAL, "p (Holm)", "verdict"]
    told = [*notes, POOLED, f"no difference: one of {margin:g}{UNITS[results.metric]} or more is ruled out (5 %, Holm)."]
    return Grid(columns, rows, data, frozenset({INTERVAL, "p (Holm)"}), results.question, told, bold)


def _verdict(term: Term) -> str:
    """Of a factor, never of its absence; of an interaction, whether both together are more or less than the sum of each."""
    if term.judged is None:
        return "not told apart from other effects"
    together = {Verdict.HELPS: "better together", Verdict.HURTS: "worse together"} if term.kind == "interaction" else {}
    return together.get(term.judged.verdict, str(term.judged.verdict))


def factors_grid(
    results: StudyResults, baseline: Mapping[str, Level], margin: float, looks: Looks | None = None, *, interactions: bool
) -> Grid:
    """Main effects or two-factor interactions over all cells."""
    model = Factorial(results, baseline, looks)
    find = model.interactions if interactions else model.main_effects
    what = (
        "What both levels do together beyond the sum of each alone"
        if interactions
        else "Level against the factor's baseline, on average over the levels of the other factors"
    )
    notes = [f"{what}; seeds are blocks, {model.freedom:g} degrees of freedom, sd of one training {model.sd:.3g}."]
    if model.additive:
        notes.append("The design cannot tell main effects from interactions: the effects are right if factors do not interact.")
    return terms_grid(results, find(margin, results.direction), margin, notes)


def contributions_grid(
    results: StudyResults, baseline: Mapping[str, Level], full: Mapping[str, Level], margin: float, looks: Looks | None = None
) -> Grid:
    """What each factor adds: alone, left out of the full model, and on average over all orders."""
    model = Factorial(results, baseline, looks)
    notes = [
        "alone: the baseline with this factor; left out: the full model less the model without it; shapley: its addition "
        "on average "
        f"over all orders of adding factors. Seeds are blocks, {model.freedom:g} degrees of freedom."
    ]
    return terms_grid(results, model.contributions(full, margin, results.direction), margin, notes)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
