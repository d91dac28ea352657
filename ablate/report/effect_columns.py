"""The columns of tables of effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ablate.records import Metric, Status, level_text
from ablate.report.effect import Effect
from ablate.report.factorial import Term
from ablate.report.new_images import ImageEffect
from ablate.report.numbers import fixed, p_text
from ablate.report.summary import factor_label, level_label
from ablate.report.table import Column
from ablate.report.units import Unit
from ablate.report.verdicts import Estimate, Verdict
from ablate.report.wording import change_text, interval_text, verdict_text

INTERVAL = "Δ (95 % interval)"

ADJUSTED = "p (adj.)"

# Seeds of a row without a result, by their status.
UNFINISHED = (
    Status.ABANDONED,
    Status.DIVERGED,
    Status.FAILED,
    Status.PLANNED,
    Status.PRUNED,
    Status.RUNNING,
)

THESE_IMAGES = "these images"

NEW_IMAGES = "new images"

VerdictWord = Literal["helps", "hurts", "no difference", "inconclusive"]


def _n_reference(effect: Effect) -> int:
    return len(effect.seeds) + effect.extra if effect.apart is None else effect.apart


def effect_columns(
    metric: Metric, unit: Unit, *, counted: bool = True
) -> list[Column[Effect]]:
    """Returns the columns of a table of effects.

    Args:
        metric: what the differences are of.
        unit: the unit of the FLOPs.
        counted: whether FLOPs are known; a trainer may have none to count.
    """
    costs: list[Column[Effect]] = []
    if counted:
        costs.append(
            Column(
                heading=f"Δ FLOPs ({unit.letter})",
                text=lambda effect: _delta_flops(effect, unit),
                right=True,
            )
        )
    return [
        Column("row", lambda effect: effect.row, heading="row", right=True, kind=int),
        Column("against", lambda effect: effect.against, kind=int),
        Column(
            "change",
            lambda effect: change_text(effect.changed),
            heading="change",
            text=lambda effect: change_text(effect.changed, effect.labels),
            kind=str,
            about="the levels in which the row differs",
        ),
        Column(
            "n",
            lambda effect: len(effect.seeds),
            heading="n",
            right=True,
            kind=int,
            about="seeds that both have",
        ),
        Column(
            "n_reference",
            _n_reference,
            kind=int,
            about="seeds of row 0 that the difference uses",
        ),
        Column(
            "difference",
            lambda effect: effect.mean,
            heading=INTERVAL,
            text=lambda effect: _difference(effect, metric),
            right=True,
            kind=float | None,
        ),
        _estimate_column("low", "interval of the difference"),
        _estimate_column("high", "interval of the difference"),
        _estimate_column("p"),
        Column(
            "p_adjusted",
            lambda effect: effect.p_adjusted,
            heading=ADJUSTED,
            text=lambda effect: p_text(effect.p_adjusted),
            right=True,
            kind=float | None,
            about="below 0.05: helps or hurts",
        ),
        Column("p_same", _p_same, kind=float | None, about="below 0.05: no difference"),
        *costs,
        Column(
            "verdict",
            lambda effect: str(effect.verdict),
            heading="verdict",
            text=_verdict_and_left_out,
            kind=VerdictWord,
        ),
        Column(
            "withheld",
            lambda effect: str(effect.withheld) if effect.withheld else None,
            kind=str | None,
            about="why there is no verdict",
        ),
        Column(
            "tested_in",
            lambda effect: effect.shown_by or None,
            kind=str | None,
            about="the earlier study whose verdict this is",
        ),
        Column(
            "seeds_needed",
            lambda effect: effect.further,
            kind=int | None,
            about="seeds to add for an even chance",
        ),
        Column(
            "chance",
            lambda effect: effect.chance,
            kind=float | None,
            about="probability of a conclusive verdict at the last look",
        ),
        Column("delta_flops", lambda effect: effect.delta_flops, kind=int | None),
        Column("delta_params", _delta_params, kind=int | None),
        *(_left_out_column(status) for status in UNFINISHED),
    ]


def _estimate_column(name: str, about: str = "") -> Column[Effect]:
    return Column(
        name,
        lambda effect: getattr(effect.estimate, name, None),
        kind=float | None,
        about=about,
    )


def _left_out_column(status: Status) -> Column[Effect]:
    return Column(
        status.value,
        lambda effect: effect.left_out.get(status.value),
        kind=int,
        about="seeds of the row with this status",
        optional=True,
    )


def _p_same(effect: Effect) -> float | None:
    if effect.judged is None or effect.p_adjusted is None:
        return None
    return effect.judged.p_same


def _delta_params(effect: Effect) -> int | None:
    if effect.cost is None or effect.reference_cost is None:
        return None
    return effect.cost.params - effect.reference_cost.params


def _delta_flops(effect: Effect, unit: Unit) -> str:
    if effect.delta_flops is None:
        return ""
    return unit.text(effect.delta_flops, signed=True)


def _verdict_and_left_out(effect: Effect) -> str:
    """Returns the verdict in words, with the seeds that have no result."""
    text = verdict_text(effect)
    for state, number in effect.left_out.items():
        is_named = text.endswith(state)
        text += f" ({number})" if is_named else f" ({number} {state})"
    return text


def image_columns(labels: Mapping[str, str]) -> list[Column[ImageEffect]]:
    return [
        Column("row", lambda effect: effect.row, heading="row", right=True),
        Column(
            "change",
            lambda effect: change_text(effect.changed),
            heading="change",
            text=lambda effect: change_text(effect.changed, labels),
        ),
        Column("n", lambda effect: len(effect.seeds), heading="n", right=True),
        Column("images", lambda effect: effect.images),
        Column(
            "difference",
            lambda effect: effect.mean,
            heading=THESE_IMAGES,
            text=lambda effect: _points(effect.mean, effect.over_seeds),
            right=True,
        ),
        Column("low", lambda effect: getattr(effect.over_seeds, "low", None)),
        Column("high", lambda effect: getattr(effect.over_seeds, "high", None)),
        Column(
            heading=NEW_IMAGES,
            text=lambda effect: _points(effect.mean, effect.over_both),
            right=True,
        ),
        Column("new_low", lambda effect: getattr(effect.over_both, "low", None)),
        Column("new_high", lambda effect: getattr(effect.over_both, "high", None)),
        Column(
            "p_better",
            lambda effect: effect.better,
            heading="P(better)",
            text=lambda effect: "" if effect.better is None else f"{effect.better:.2f}",
            right=True,
            detail=True,
        ),
        Column(
            "won", lambda effect: effect.won, heading="won", right=True, detail=True
        ),
        Column(
            "lost", lambda effect: effect.lost, heading="lost", right=True, detail=True
        ),
    ]


def _points(mean: float, estimate: Estimate | None) -> str:
    if estimate is None:
        return f"{mean:+.2f}"
    return f"{mean:+.2f} ({estimate.low:+.2f} to {estimate.high:+.2f})"


def _difference(effect: Effect, metric: Metric) -> str:
    if effect.estimate is not None:
        return interval_text(effect.estimate, metric)
    if effect.mean is None:
        return ""
    return fixed(effect.mean, metric.digits, signed=True)


def term_columns(metric: Metric, labels: Mapping[str, str]) -> list[Column[Term]]:
    """Returns the columns of a table of main effects, interactions or contributions."""

    def levels(term: Term) -> str:
        pairs = zip(term.factors, term.levels, strict=True)
        return ", ".join(level_label(labels, factor, level) for factor, level in pairs)

    def factors(term: Term) -> str:
        return " x ".join(factor_label(labels, factor) for factor in term.factors)

    return [
        Column("kind", lambda term: term.kind, heading="effect", kind=str),
        Column(
            "factor",
            lambda term: " x ".join(term.factors),
            heading="factor",
            text=factors,
            kind=str,
        ),
        Column(
            "level",
            lambda term: " x ".join(map(level_text, term.levels)),
            heading="level",
            text=levels,
            kind=str,
        ),
        Column(
            "effect",
            lambda term: getattr(term.estimate, "value", None),
            heading=INTERVAL,
            text=lambda term: (
                interval_text(term.estimate, metric) if term.estimate else ""
            ),
            right=True,
            kind=float | None,
        ),
        _term_column("low", "95 % interval of the effect"),
        _term_column("high", "95 % interval of the effect"),
        _term_column("p"),
        Column(
            "p_adjusted",
            lambda term: getattr(term.judged, "p", None),
            heading=ADJUSTED,
            text=lambda term: p_text(getattr(term.judged, "p", None)),
            right=True,
            kind=float | None,
        ),
        Column(
            "verdict",
            lambda term: str(term.judged.verdict) if term.judged else None,
            heading="verdict",
            text=_verdict,
            kind=VerdictWord | None,
        ),
    ]


def _term_column(name: str, about: str = "") -> Column[Term]:
    return Column(
        name,
        lambda term: getattr(term.estimate, name, None),
        kind=float | None,
        about=about,
    )


def _verdict(term: Term) -> str:
    """Returns the verdict on a term, in words.

    It is about the presence of a factor, never about its absence. For an interaction it
    says whether both together do more or less than the sum of each.
    """
    if term.judged is None:
        return "cannot be separated from other effects"
    if term.judged.withheld is not None:
        return str(term.judged.withheld)
    if term.kind == "interaction":
        together = {Verdict.HELPS: "better together", Verdict.HURTS: "worse together"}
    else:
        together = {}
    return together.get(term.judged.verdict, str(term.judged.verdict))
