"""Effects as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.errors import AblateError
from ablate.records import LEVEL, Level, Looks, Metric, Status, StudyResults, level_text
from ablate.records.primary import CONTROLS, primary_factors
from ablate.report.confirmation import confirmation_note, confirmed_study
from ablate.report.effect import Effect
from ablate.report.factorial import Factorial, Term
from ablate.report.importance import exact_shares
from ablate.report.new_images import ImageEffect
from ablate.report.numbers import fixed
from ablate.report.pairing import seed_share
from ablate.report.summary import factor_label, level_label
from ablate.report.tables import Table, plain
from ablate.report.units import Unit, unit_for
from ablate.report.verdicts import Estimate, Verdict
from ablate.report.wording import (
    change_text,
    collapse_note,
    effect_data,
    exploratory,
    generation_notes,
    interval_text,
    no_difference,
    rows_text,
    vary_text,
    verdict_text,
    withheld_notes,
)

INTERVAL = "Δ (95 % interval)"
ADJUSTED = "p (adj.)"
OF_ALL_ROWS = (
    "the variance is estimated from all rows, with extra weight for the row itself and"
    " for row 0"
)
STEP_DOWN = (
    "step-down: the interval contains 0, and the step-down test decides: it leaves out"
    " rows that are already decided."
)
CONTRIBUTIONS = {
    "alone": "alone: the baseline with only this factor at its full level, minus the"
    " baseline.",
    "left out": "left out: the full model minus the full model without this factor.",
    "shapley": "shapley: the gain from adding this factor, averaged over all orders of"
    " adding the factors.",
}
FULL_MODEL = "The full model has every factor at its full level."
FULL_LEVEL = "The full level of a factor is by default the last one of its list."
WITHOUT_RESULT = (
    Status.FAILED,
    Status.DIVERGED,
    Status.PRUNED,
    Status.ABANDONED,
)
THESE_IMAGES = "these images"
NEW_IMAGES = "new images"
POOLED = (
    "The noise is pooled over all cells, because there are fewer than five seeds or a"
    " cell lacks one of them. This assumes that the noise is equal in all cells, and"
    " that an effect is the same for every seed. If a verdict here contradicts that of"
    " a row, the verdict of the row counts."
)
BY_SEED = (
    "Each effect is computed seed by seed, with the interval of Student's t over the"
    " seeds, so it may differ between seeds."
)


def effects_table(
    results: StudyResults,
    effects: Sequence[Effect],
    margin: float,
    *,
    controls: bool = False,
) -> Table:
    """Returns a table with one row per effect.

    A row has the change, the difference with its interval, the verdict and the cost.
    """
    unit = unit_for(abs(effect.delta_flops or 0) for effect in effects)
    flops = f"Δ FLOPs ({unit.letter})"
    rows = [_effect_row(effect, results.metric, unit) for effect in effects]
    columns = ["row", "change", "n", INTERVAL, ADJUSTED, flops, "verdict"]
    bold = _decided([effect.verdict for effect in effects])
    metric = results.metric
    unit_text = f" in{metric.unit}" if metric.unit else ""
    against = "its iso-cost control" if controls else "row 0"
    is_single = len(effects) == 1
    how = _interval_words(controls=controls, is_single=is_single)
    adjusted = _adjusted_text(
        rows=not is_single, holm=controls, later=not results.generation.final
    )
    decided = "if p is below 0.05, the verdict is helps or hurts"
    if any(effect.withheld for effect in effects):
        decided += ", unless the row has no verdict"
    notes = [
        (
            f"Δ {metric.title.partition(' (')[0]}{unit_text}:"
            f" mean difference from {against}, paired by seed, with its 95 % interval"
            f" ({how}). p: {adjusted}{decided}."
        ),
        (
            no_difference(metric, margin, "two one-sided tests, 5 %, adjusted")
            + " inconclusive, about N more seeds: N more seeds give an even chance of a"
            " conclusive verdict."
        ),
    ]
    unusual = vary_text(results.vary)
    if unusual:
        notes.append(f"{unusual[0].upper()}{unusual[1:]}.")
    share = None if controls else seed_share(confirmed_study(results))
    if share is not None:
        notes.append(
            "A seed can raise or lower all rows alike. This shift makes up"
            f" {100 * share:.0f} % of the variance between trainings. Pairing by seed"
            " removes it from the differences."
        )
    alone = [effect.row for effect in effects if effect.alone]
    if controls:
        notes += _uncontrolled(results, effects)
    if alone:
        estimated = sum(effect.estimate is not None for effect in effects)
        notes.append(_alone_note(alone, everywhere=len(alone) == estimated))
    if not controls and not is_single:
        notes += _apart_note(effects)
    primary = [str(effect.row) for effect in effects if effect.primary]
    if primary:
        notes.append(
            f"Primary, tested one after the other by paired t: row"
            f" {', '.join(primary)}. Rows after them are tested if all of them differ."
        )
    if any(effect.is_step_down for effect in effects):
        notes.append(STEP_DOWN)
    notes += confirmation_note(results)
    notes += collapse_note(results, effects, f"+.{metric.digits}f")
    notes += withheld_notes(effects)
    notes += generation_notes(results, effects)
    declared = results.primary
    if controls != (CONTROLS in declared) or primary_factors(declared):
        notes.append(exploratory(declared))
    data = [effect_data(effect) for effect in effects]
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset({"row", "n", INTERVAL, ADJUSTED, flops}),
        title=results.question,
        notes=notes,
        bold=bold,
    )


def _uncontrolled(results: StudyResults, effects: Sequence[Effect]) -> list[str]:
    """Returns a note on the rows that have no control of their own, if any."""
    controlled = {cell.control_of for cell in results.cells}
    rows = [effect for effect in effects if effect.row not in controlled]
    if not rows:
        return []
    listed = ", ".join(str(effect.row) for effect in rows)
    return [
        f"Compared with row {rows[0].against}, because no other width of the baseline is"
        f" nearer in cost: row {listed}."
    ]


def _alone_note(rows: Sequence[int], *, everywhere: bool) -> str:
    """Returns which rows the noise of the other rows is not used for.

    Args:
        everywhere: whether it is used for no row, because row 0 is unusual.
    """
    if everywhere:
        return (
            "Each row is tested by a paired t test on its own differences only, because"
            " the results of row 0 vary much more than those of the other rows."
        )
    are, their = ("is", "its") if len(rows) == 1 else ("are", "their")
    return (
        f"{rows_text(rows).capitalize()} {are} tested by a paired t test on {their} own"
        " differences only, because these vary much more than those of the other rows."
    )


def _apart_note(effects: Sequence[Effect]) -> list[str]:
    """Returns a note on the rows that are not tested together with the others."""
    apart = [
        effect.row
        for effect in effects
        if effect.withheld is not None
        and effect.estimate is not None
        and not effect.alone
        and effect.estimate.freedom == len(effect.seeds) - 1
    ]
    if not apart:
        return []
    have, their = ("has", "its") if len(apart) == 1 else ("have", "their")
    return [
        f"{rows_text(apart).capitalize()} {have} no verdict; the interval and p come from"
        f" {their} own differences only (paired t)."
    ]


def _interval_words(*, controls: bool, is_single: bool) -> str:
    """Returns what the intervals of a table of effects are, in words."""
    if is_single:
        return "paired t"
    if controls:
        return "paired t, for all rows at once"
    return f"for all rows at once; {OF_ALL_ROWS}"


def _adjusted_text(*, rows: bool, holm: bool, later: bool) -> str:
    """Returns what p values are adjusted for, and how.

    Args:
        rows: whether there are several comparisons.
        holm: whether they are adjusted by Holm, otherwise by simulation.
        later: whether seeds may be added. Final seeds use the whole 5 %.
    """
    parts = []
    if rows:
        parts.append(f"for all rows ({'by Holm' if holm else 'by simulation'})")
    if later:
        parts.append("for seeds that you may add later")
    if not parts:
        return ""
    return f"adjusted {' and '.join(parts)}; "


def images_table(results: StudyResults, effects: Sequence[ImageEffect]) -> Table:
    """Returns a table with one row per effect, over seeds and over images."""
    rows = [
        [
            str(effect.row),
            change_text(effect.changed, results.labels),
            str(len(effect.seeds)),
            _points(effect.mean, effect.over_seeds),
            _points(effect.mean, effect.over_both),
            "" if effect.better is None else f"{effect.better:.2f}",
            str(effect.won),
            str(effect.lost),
        ]
        for effect in effects
    ]
    data = [_image_data(effect) for effect in effects]
    columns = [
        "row",
        "change",
        "n",
        THESE_IMAGES,
        NEW_IMAGES,
        "P(better)",
        "won",
        "lost",
    ]
    images = effects[0].images
    notes = [
        f"Δ top-1 in points: mean difference from row 0 on {images} test images,"
        " paired by seed and image, with 95 % intervals (Student's t on the row's own"
        " differences, for this row alone; the intervals of the verdicts are for all"
        " rows at once). these images: the interval for other seeds on the same test images."
        " new images: the interval for other seeds on other test images. The interval"
        " for new images is never narrower than that for these images, and with few"
        " seeds often equal to it.",
        f"P(better): the probability that, with a new seed and on {images} new images,"
        " the row classifies more images correctly than row 0.",
        "won, lost: for each image, count the seeds with which the row classifies it"
        " correctly, and do the same for row 0. won: images with a higher count for"
        " the row. lost: images with a higher count for row 0.",
    ]
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset(columns) - {"change"},
        title=results.question,
        notes=notes,
    )


def _points(mean: float, estimate: Estimate | None) -> str:
    if estimate is None:
        return f"{mean:+.2f}"
    return f"{mean:+.2f} ({estimate.low:+.2f} to {estimate.high:+.2f})"


def _image_data(effect: ImageEffect) -> dict[str, Any]:
    """Returns one effect in full precision."""
    seeds = effect.over_seeds
    both = effect.over_both
    return {
        "row": effect.row,
        "change": change_text(effect.changed),
        "n": len(effect.seeds),
        "images": effect.images,
        "difference": effect.mean,
        "low": seeds.low if seeds else None,
        "high": seeds.high if seeds else None,
        "new_low": both.low if both else None,
        "new_high": both.high if both else None,
        "p_better": effect.better,
        "won": effect.won,
        "lost": effect.lost,
    }


def _effect_row(effect: Effect, metric: Metric, unit: Unit) -> list[str]:
    """Returns the texts of one effect."""
    flops = ""
    if effect.delta_flops is not None:
        flops = unit.text(effect.delta_flops, signed=True)
    verdict = verdict_text(effect)
    for state, number in effect.left_out.items():
        is_named = verdict.endswith(state)
        verdict += f" ({number})" if is_named else f" ({number} {state})"
    return [
        str(effect.row),
        change_text(effect.changed, effect.labels),
        str(len(effect.seeds)),
        _difference(effect, metric),
        "" if effect.p_adjusted is None else _p(effect.p_adjusted),
        flops,
        verdict,
    ]


def _difference(effect: Effect, metric: Metric) -> str:
    if effect.estimate is not None:
        return interval_text(effect.estimate, metric)
    if effect.mean is None:
        return ""
    return fixed(effect.mean, metric.digits, signed=True)


def terms_table(
    results: StudyResults,
    terms: Sequence[Term],
    margin: float,
    notes: Sequence[str],
    *,
    by_seed: bool,
) -> Table:
    """Returns a table with one row per main effect, interaction or contribution."""
    rows = [_term_row(term, results) for term in terms]
    data = [_term_data(term) for term in terms]
    bold = _decided([term.judged.verdict if term.judged else None for term in terms])
    columns = ["effect", "factor", "level", INTERVAL, ADJUSTED, "verdict"]
    notes = [
        *notes,
        BY_SEED if by_seed else POOLED,
        no_difference(
            results.metric,
            margin,
            "5 %, adjusted by Holm's method; the intervals are not adjusted",
        ),
        *_missing_note(results),
    ]
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset({INTERVAL, ADJUSTED}),
        title=results.question,
        notes=notes,
        bold=bold,
    )


def _missing_note(results: StudyResults) -> list[str]:
    """Returns the sentences on trials that ended without a result; none if none did."""
    ended: Counter[Status] = Counter()
    for cell in results.cells:
        # Controls and folded cells are not part of these effects.
        if cell.same_as is None and cell.role != "control":
            ended.update(cell.statuses.values())
    missing = []
    for status in WITHOUT_RESULT:
        if ended[status]:
            missing.append(f"{ended[status]} {status}")
    if not missing:
        return []
    return [
        f"These effects leave out trials that ended without a result: {', '.join(missing)}."
        " If a level is the cause of such trials, its effect looks better than it is."
    ]


def _decided(verdicts: Sequence[Verdict | None]) -> frozenset[tuple[int, str]]:
    """Returns the cells of a table that are bold: `helps` and `hurts`."""
    return frozenset(
        (row, "verdict")
        for row, verdict in enumerate(verdicts)
        if verdict in (Verdict.HELPS, Verdict.HURTS)
    )


def _term_row(term: Term, results: StudyResults) -> list[str]:
    """Returns the texts of one term."""
    labels = results.labels
    levels = [
        level_label(labels, factor, level)
        for factor, level in zip(term.factors, term.levels, strict=True)
    ]
    return [
        term.kind,
        " x ".join(factor_label(labels, factor) for factor in term.factors),
        ", ".join(levels),
        interval_text(term.estimate, results.metric) if term.estimate else "",
        _p(term.judged.p) if term.judged else "",
        _verdict(term),
    ]


def _term_data(term: Term) -> dict[str, Any]:
    """Returns one term in full precision."""
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
        "p_adjusted": judged.p if judged else None,
        "verdict": str(judged.verdict) if judged else None,
    }


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


def factors_table(
    results: StudyResults,
    baseline: Mapping[str, Level],
    margin: float,
    looks: Looks | None = None,
    *,
    interactions: bool,
) -> Table:
    """Returns a table of main effects or of two-factor interactions over all cells."""
    model = Factorial(results, baseline, looks)
    find = model.interactions if interactions else model.main_effects
    if interactions:
        what = (
            "An interaction is the effect of changing two factors together, minus the sum of"
            " the effects of changing each one alone"
        )
    else:
        what = "Each level is compared with the factor's baseline level"
        if not model.additive:
            what += ", averaged over the levels of the other factors"
    notes = [
        f"{what}. Seeds are blocks: after subtracting the mean of each seed, the"
        f" standard deviation between trainings of the same row is {model.sd:.3g}"
        f" (estimated from all rows together, {model.freedom:g} degrees of freedom)."
    ]
    if model.additive:
        notes.append(
            "This design cannot separate main effects from interactions: the effects"
            " are correct only if factors do not interact."
        )
    terms = find(margin, results.direction)
    notes += _family_notes(results, interactions=interactions)
    return terms_table(results, terms, margin, notes, by_seed=model.by_seed)


def _family_notes(results: StudyResults, *, interactions: bool) -> list[str]:
    """Returns whether this table is the study's family of comparisons."""
    primary = primary_factors(results.primary)
    if interactions or not primary:
        return [exploratory(results.primary)]
    return [
        f"Primary, tested one after the other: {', '.join(primary)}. Other factors are"
        " tested if all of them differ."
    ]


def shares_table(results: StudyResults, baseline: Mapping[str, Level]) -> Table | None:
    """Returns a table of exact importance, or None if the study has none.

    It has none if it is not a complete grid, or if nothing but noise varies.
    """
    try:
        model = Factorial(results, baseline)
    except AblateError:
        # A single seed: how much of the variance is noise is unknown.
        return None
    shares = exact_shares(model)
    if shares is None:
        return None
    data = [
        {"factor": share.factor, "main": share.main, "total": share.total}
        for share in shares
    ]
    notes = [
        "Exact share of each factor in the variance of the cell means, in a complete"
        " grid. main: the share that comes from the differences between its levels,"
        " after averaging over all other factors. total: the main share plus the"
        " shares of all interactions of the factor. The variance that comes from the"
        f" noise of training (sd {model.sd:.3g}) is subtracted first."
    ]
    return replace(plain(data, results.question), notes=notes)


def contributions_table(
    results: StudyResults,
    baseline: Mapping[str, Level],
    full: Mapping[str, Level],
    margin: float,
    looks: Looks | None = None,
) -> Table:
    """Returns a table of what each factor adds.

    It adds something alone, when it is left out of the full model, and on average over
    all orders of adding factors.
    """
    model = Factorial(results, baseline, looks)
    terms = model.contributions(full, margin, results.direction)
    notes = [_contributions_note(terms), exploratory(results.primary)]
    return terms_table(results, terms, margin, notes, by_seed=model.by_seed)


def _contributions_note(terms: Sequence[Term]) -> str:
    """Returns what the kinds of contributions mean that a table has."""
    kinds = dict.fromkeys(term.kind for term in terms)
    meanings = [CONTRIBUTIONS[kind] for kind in kinds]
    if set(kinds) != {"alone"}:
        meanings.append(FULL_MODEL)
    return " ".join([*meanings, FULL_LEVEL, "Seeds are blocks."])


def _p(value: float) -> str:
    if value < 0.001:
        return "< 0.001"
    text = f"{value:.3f}"
    # A value that is just below the limit must not look as if it was the limit.
    return f"{value:.4f}" if value < LEVEL and float(text) == LEVEL else text
