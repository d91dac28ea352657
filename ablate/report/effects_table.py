"""Effects as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablate.errors import AblateError
from ablate.records import Level, Status, StudyResults
from ablate.records.primary import CONTROLS, primary_factors
from ablate.report.confirmation import confirmation_note, confirmed_study
from ablate.report.effect import Effect
from ablate.report.effect_columns import effect_columns, image_columns, term_columns
from ablate.report.factorial import Factorial, Term
from ablate.report.importance import exact_shares
from ablate.report.new_images import ImageEffect, SeedNoise
from ablate.report.numbers import fixed
from ablate.report.pairing import seed_share
from ablate.report.table import Table, plain, tabulate
from ablate.report.units import unit_for
from ablate.report.verdicts import Verdict, Withheld
from ablate.report.wording import (
    collapse_note,
    exploratory,
    extra_note,
    generation_notes,
    given_up_notes,
    no_difference,
    no_difference_sentence,
    reported_notes,
    rows_text,
    tuning_note,
    vary_text,
    withheld_notes,
)

OF_ALL_ROWS = (
    "the variance is estimated from all rows, with extra weight for the row itself and"
    " for row 0"
)
UNPAIRED = "Welch's t with the smaller of both degrees of freedom"
STEP_DOWN = (
    "step-down: the interval contains 0, and Holm's test decides: it leaves out rows that"
    " are already decided."
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
POOLED = (
    "The noise is pooled over all cells, because there are fewer than five seeds or a"
    " cell lacks one of them. This assumes that the noise is equal in all cells, and"
    " that an effect is the same for every seed. If a verdict here contradicts that of"
    " a row, the verdict of the row counts."
)
# Why a row has no verdict that was trained elsewhere.
WITHOUT_A_RUN = (Withheld.FAILED, Withheld.DIVERGED)
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
    bold = _decided([effect.verdict for effect in effects])
    metric = results.metric
    unit_text = f" in{metric.unit}" if metric.unit else ""
    against = "its iso-cost control" if controls else "row 0"
    is_single = len(effects) == 1
    pairing = "paired by seed" if results.is_paired else "unpaired"
    how = _interval_words(results, controls=controls, is_single=is_single)
    adjusted = _adjusted_text(
        rows=not is_single,
        holm=controls or not results.is_paired,
    )
    decided = "if p is below 0.05, the verdict is helps or hurts"
    if any(effect.withheld for effect in effects):
        decided += ", unless the row has no verdict"
    notes = [
        (
            f"Δ {metric.title.partition(' (')[0]}{unit_text}:"
            f" mean difference from {against}, {pairing}, with its 95 % interval"
            f" ({how}). p: {adjusted}{decided}."
        ),
        (
            _no_difference(results, margin, "two one-sided tests, 5 %, adjusted")
            + " inconclusive, about N more seeds: N more seeds give an even chance of a"
            " conclusive verdict."
        ),
    ]
    unusual = vary_text(results.vary)
    if unusual:
        notes.append(f"{unusual[0].upper()}{unusual[1:]}.")
    if controls:
        notes += _uncontrolled(results, effects)
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
    notes += tuning_note(results)
    notes += extra_note(effects)
    notes += given_up_notes(effects)
    notes += confirmation_note(results)
    notes += collapse_note(results, effects, f"+.{metric.digits}f")
    notes += _withheld_notes(results, effects)
    notes += generation_notes(results)
    notes += reported_notes(results)
    declared = results.primary
    if controls != (CONTROLS in declared) or primary_factors(declared):
        notes.append(exploratory(declared))
    unit = unit_for(abs(effect.delta_flops or 0) for effect in effects)
    return tabulate(
        effect_columns(
            results.metric,
            unit,
            counted=any(effect.delta_flops is not None for effect in effects),
        ),
        effects,
        title=results.question,
        notes=notes,
        bold=bold,
        detail_notes=[] if controls else _pairing_note(results),
    )


def _pairing_note(results: StudyResults) -> list[str]:
    """Returns how much of the noise pairing by seed removes."""
    share = seed_share(confirmed_study(results)) if results.is_paired else None
    if share is None:
        return []
    return [
        "A seed can raise or lower all rows alike. This shift makes up"
        f" {100 * share:.0f} % of the variance between trainings. Pairing by seed"
        " removes it from the differences."
    ]


def _withheld_notes(results: StudyResults, effects: Sequence[Effect]) -> Sequence[str]:
    """Returns why rows have no verdict."""
    if results.reported is None:
        return withheld_notes(effects)
    survivors = [effect for effect in effects if effect.withheld in WITHOUT_A_RUN]
    others = [effect for effect in effects if effect not in survivors]
    notes = withheld_notes(others)
    if survivors:
        notes.append(
            "A row has no verdict if one of its runs, or of row 0, has no result: the"
            " others may be the survivors."
        )
    return notes


def _no_difference(results: StudyResults, margin: float, how: str) -> str:
    """Returns what the verdict `no difference` means.

    Args:
        how: the test, in words.
    """
    if results.reported is not None and not margin:
        return no_difference_sentence(results.metric, margin)
    return no_difference(results.metric, margin, how)


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


def _apart_note(effects: Sequence[Effect]) -> list[str]:
    """Returns a note on the rows that are not tested together with the others."""
    apart = [
        effect.row
        for effect in effects
        if effect.withheld is not None
        and effect.estimate is not None
        and effect.estimate.freedom == len(effect.seeds) - 1
    ]
    if not apart:
        return []
    have, their = ("has", "its") if len(apart) == 1 else ("have", "their")
    return [
        f"{rows_text(apart).capitalize()} {have} no verdict; the interval and p come from"
        f" {their} own differences only (paired t)."
    ]


def _interval_words(results: StudyResults, *, controls: bool, is_single: bool) -> str:
    """Returns what the intervals of a table of effects are, in words."""
    if not results.is_paired:
        return UNPAIRED if is_single else f"{UNPAIRED}, for all rows at once"
    if is_single:
        return "paired t"
    if controls:
        return "paired t, for all rows at once"
    return f"for all rows at once; {OF_ALL_ROWS}"


def _adjusted_text(*, rows: bool, holm: bool) -> str:
    """Returns what p values are adjusted for, and how.

    Args:
        rows: whether there are several comparisons.
        holm: whether they are adjusted by Holm, otherwise by simulation.
    """
    parts = []
    if rows:
        parts.append(f"for all rows ({'by Holm' if holm else 'by simulation'})")
    parts.append("for what you add later")
    return f"adjusted {' and '.join(parts)}; "


def images_table(
    results: StudyResults, effects: Sequence[ImageEffect], noise: SeedNoise | None
) -> Table:
    """Returns a table with one row per effect, over seeds and over images.

    Args:
        noise: why top-1 differs between seeds.
    """
    images = effects[0].images
    notes = [
        f"Δ top-1 in points: mean difference from row 0 on {images} test images,"
        " paired by seed and image, with 95 % intervals (Student's t on the row's own"
        " differences, for this row alone; the intervals of the verdicts are for all"
        " rows at once). these images: the interval for other seeds on the same test images."
        " new images: the interval for other seeds on other test images. The interval"
        " for new images is never narrower than that for these images, and with few"
        " seeds often equal to it.",
    ]
    if noise is not None:
        notes.append(
            f"Seeds differ by {fixed(noise.sd, 2)} points (standard deviation, pooled over"
            f" rows). {fixed(noise.of_images, 2)} points are expected from the number of"
            f" test images alone, if each of the {images} images is right or wrong by"
            " itself (Jordan, arXiv 2304.01910). More test images reduce this part."
        )
    detail_notes = [
        f"P(better): the probability that, with a new seed and on {images} new images,"
        " the row classifies more images correctly than row 0.",
        "won, lost: for each image, count the seeds with which the row classifies it"
        " correctly, and do the same for row 0. won: images with a higher count for"
        " the row. lost: images with a higher count for row 0.",
    ]
    return tabulate(
        image_columns(results.labels),
        effects,
        title=results.question,
        notes=notes,
        detail_notes=detail_notes,
    )


def terms_table(
    results: StudyResults,
    terms: Sequence[Term],
    margin: float,
    notes: Sequence[str],
    *,
    by_seed: bool,
) -> Table:
    """Returns a table with one row per main effect, interaction or contribution."""
    bold = _decided([term.judged.verdict if term.judged else None for term in terms])
    notes = [
        *notes,
        BY_SEED if by_seed else POOLED,
        _no_difference(
            results,
            margin,
            "5 %, adjusted by Holm's method; the intervals are not adjusted",
        ),
        *_missing_note(results),
        *reported_notes(results),
    ]
    return tabulate(
        term_columns(results.metric, results.labels),
        terms,
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


def factors_table(
    results: StudyResults,
    baseline: Mapping[str, Level],
    margin: float,
    *,
    interactions: bool,
) -> Table:
    """Returns a table of main effects or of two-factor interactions over all cells."""
    model = Factorial(results, baseline)
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
    notes += reported_notes(results)
    return replace(plain(data, results.question), notes=notes)


def contributions_table(
    results: StudyResults,
    baseline: Mapping[str, Level],
    full: Mapping[str, Level],
    margin: float,
) -> Table:
    """Returns a table of what each factor adds.

    It adds something alone, when it is left out of the full model, and on average over
    all orders of adding factors.
    """
    model = Factorial(results, baseline)
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
