"""Results in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.records import Level, Space
from ablate.report.effects import Effect
from ablate.report.further import MOST
from ablate.report.table import DIGITS, level_text
from ablate.report.units import unit_for
from ablate.report.verdicts import Estimate, Verdict

UNITS = {"top1": " points", "top5": " points", "loss": ""}


def policy(space: Space) -> str:
    """What of a trial the metric is."""
    if space.recipe.ema or any(space.factors.get("recipe.ema", ())):
        weights = "EMA weights"
    else:
        weights = ""
    if not space.data.validation:
        found = "last epoch, test set"
    elif space.recipe.select == "best" or "best" in space.factors.get(
        "recipe.select", ()
    ):
        found = (
            "test set, weights of the epoch that is best on"
            f" {100 * space.data.validation:g} % held-out training images"
        )
    else:
        found = (
            f"test set after the last epoch, {100 * space.data.validation:g} % of the"
            " training images held out"
        )
    return ", ".join(filter(None, (found, weights)))


def change_text(levels: Mapping[str, Level | None]) -> str:
    """Levels as `shortcuts.count = 2, layout = parallel`."""
    return (
        ", ".join(
            f"{name} = {level_text(level)}"
            for name, level in levels.items()
            if level is not None
        )
        or "nothing changed"
    )


def interval_text(estimate: Estimate, metric: str) -> str:
    """`+0.80 (+0.61 to +0.99)`."""
    digits = DIGITS[metric]
    return (
        f"{estimate.value:+.{digits}f} ({estimate.low:+.{digits}f} to"
        f" {estimate.high:+.{digits}f})"
    )


def cost_text(effect: Effect) -> str:
    """`at +0.04 GFLOPs`, in the unit of the reference, as all sentences of a study; or
    that the cost is equal.
    """
    more = effect.delta_flops
    if more is None or effect.reference_cost is None:
        return ""
    if not more:
        return "at equal FLOPs"
    unit = unit_for([effect.reference_cost.flops])
    if not 0.001 <= abs(more) / unit.size < 1000:
        unit = unit_for([abs(more)])
    return f"at {more / unit.size:+.3g} {unit.letter}FLOPs"


def sentence(effect: Effect, metric: str, margin: float) -> str:
    """What may be said of an effect, as one sentence for people."""
    what = change_text(effect.changed)
    unit, digits = UNITS[metric], DIGITS[metric]
    cost = f" {cost_text(effect)}".rstrip()
    lost = "".join(f"; {number} {state}" for state, number in effect.left_out.items())
    if effect.mean is None:
        return f"{what}: nothing is known yet{lost}."
    seeds = f"{len(effect.seeds)} seed{'s' if len(effect.seeds) != 1 else ''}{lost}"
    if effect.estimate is None:
        if len(effect.seeds) < 2:
            why = "one seed says"
        else:
            why = "all differences are equal, which says"
        return (
            f"{what}: we cannot tell yet, {effect.mean:+.{digits}f}{unit}{cost}"
            f" ({seeds}: {why} nothing of noise)."
        )
    low, high = sorted((abs(effect.estimate.low), abs(effect.estimate.high)))
    size = (
        f"{abs(effect.estimate.value):.{digits}f}{unit} (95 % interval {low:.{digits}f}"
        f" to {high:.{digits}f}, {seeds})"
    )
    if effect.verdict in (Verdict.HELPS, Verdict.HURTS):
        return f"{what} {effect.verdict} by {size}{cost}."
    range_ = (
        f"{interval_text(effect.estimate, metric).replace(' (', f'{unit} (95 % interval ')[:-1]},"
        f" {seeds})"
    )
    if effect.verdict is Verdict.SAME:
        return (
            f"{what} makes no difference of {margin:g}{unit} or more: {range_}{cost}."
        )
    return f"{what}: we cannot tell yet, {range_}{cost}{_prediction(effect.further)}."


def _prediction(further: int | None) -> str:
    if further is None:
        return ""
    if further > MOST:
        return f"; {MOST} further seeds would hardly decide it"
    return f"; about {_seeds(further)} would as likely as not decide it"


def _seeds(further: int) -> str:
    return f"{further} more seed{'s' if further > 1 else ''}"


def verdict_text(effect: Effect) -> str:
    """The verdict in a table's cell."""
    if effect.verdict is not Verdict.INCONCLUSIVE:
        return str(effect.verdict)
    if effect.estimate is None:
        return "inconclusive: more seeds"
    if effect.further is None:
        return "inconclusive"
    if effect.further <= MOST:
        return f"inconclusive: about {_seeds(effect.further)}"
    return f"inconclusive: more than {MOST} more seeds"


def effect_data(effect: Effect) -> dict[str, Any]:
    """An effect as plain values."""
    estimate, judged = effect.estimate, effect.judged
    return {
        "row": effect.row,
        "against": effect.against,
        "change": change_text(effect.changed),
        "n": len(effect.seeds),
        "difference": effect.mean,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "p": estimate.p if estimate else None,
        "p_holm": judged.p if judged else None,
        "p_same": judged.p_same if judged else None,
        "verdict": str(effect.verdict),
        "further_seeds": effect.further,
        "delta_flops": effect.delta_flops,
        "delta_params": (
            effect.cost.params - effect.reference_cost.params
            if effect.cost and effect.reference_cost
            else None
        ),
        **effect.left_out,
    }
