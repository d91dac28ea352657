"""Results in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ablate.records import (
    CellResult,
    Level,
    Metric,
    Primary,
    Source,
    Space,
    StudyResults,
    base_name,
    generation_name,
)
from ablate.records.primary import primary_factors, primary_is_elsewhere
from ablate.report.collapse import collapsed_seeds, near_chance
from ablate.report.effect import LEAST_CHANCE, Effect
from ablate.report.numbers import fixed
from ablate.report.summary import factor_label, level_label
from ablate.report.units import unit_for
from ablate.report.verdicts import Estimate, Verdict, Withheld
from ablate.statistics.numbers import mean_of
from ablate.statistics.seeds_needed import MOST

# What holds for all verdicts of a study together.
FALSE_VERDICTS = (
    "The probability of one or more false verdicts (helps or hurts) over all rows that"
    " are compared on these seeds, in this study and others, is at most 5 %"
)


# What stands below each table of runs that were trained elsewhere.
UNKNOWN = (
    "These runs were trained elsewhere: whether seeds or settings were selected, and"
    " whether the comparisons were declared before the results, is not known."
)
# Which value of a run counts that was trained elsewhere.
REPORTED_POLICY = "last value of each run, trained elsewhere"


def policy(space: Space) -> str:
    """Returns which value of a trial the metric is, in words."""
    over = space.criterion.compared.over
    epochs = "last epoch" if over == 1 else f"last {over} epochs"
    if space.reported is not None:
        return REPORTED_POLICY
    if space.network.trainer:
        return f"{epochs}, as trainer {space.network.trainer} reports it"
    if space.recipe.ema or any(space.factors.levels.get("recipe.ema", ())):
        weights = "EMA weights"
    else:
        weights = ""
    if not space.data.validation:
        text = f"{epochs}, test set"
    elif space.recipe.select == "best" or "best" in space.factors.levels.get(
        "recipe.select", ()
    ):
        text = (
            "test set, weights of the epoch that is best on"
            f" {100 * space.data.validation:g} % held-out training images"
        )
    else:
        text = (
            f"test set after the last epoch, {100 * space.data.validation:g} % of the"
            " training images held out"
        )
    ends_early = space.recipe.ends_early or bool(
        {"recipe.patience", "recipe.target"} & set(space.factors.levels)
    )
    early = "training may end early" if ends_early else ""
    return ", ".join(filter(None, (text, early, weights, vary_text(space.seeds.vary))))


def vary_text(vary: Collection[Source]) -> str:
    """Returns what is unusual in what a seed decides; empty if nothing is."""
    texts = []
    if "init" not in vary:
        texts.append("the same initial weights for all seeds")
    if "order" not in vary:
        texts.append("the same order of images and augmentation for all seeds")
    if "split" in vary:
        texts.append("another split of the training images for each seed")
    return ", ".join(texts)


def change_text(
    levels: Mapping[str, Level | None], labels: Mapping[str, str] | None = None
) -> str:
    """Returns levels as `shortcuts.count = 2, layout = parallel`.

    Args:
        labels: what factors and levels are called; by default their names.
    """
    called = labels or {}
    texts = [
        f"{factor_label(called, name)} = {level_label(called, name, level)}"
        for name, level in levels.items()
        if level is not None
    ]
    return ", ".join(texts) or "no factor changed"


def rows_text(rows: Sequence[int]) -> str:
    """Returns the numbers of rows in words."""
    shown = ", ".join(map(str, rows[:8]))
    if len(rows) > 8:
        shown += ", ..."
    if len(rows) == 1:
        return f"row {shown}"
    return f"rows {shown}"


def interval_text(estimate: Estimate, metric: Metric) -> str:
    """Returns an estimate as `+0.80 (+0.61 to +0.99)`."""
    digits = metric.digits
    value, low, high = (
        fixed(number, digits, signed=True)
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} ({low} to {high})"


def cost_text(effect: Effect) -> str:
    """Returns the extra cost as `at +0.04 GFLOPs`.

    The unit is that of the reference, so that all sentences of a study use the same.
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


def exploratory(primary: Sequence[Primary], what: str = "verdicts") -> str:
    """Returns the note of a table that is not the study's family of comparisons.

    Args:
        primary: the primary comparisons of the study.
        what: what the table says of its comparisons: verdicts or stars.
    """
    factors = primary_factors(primary)
    if factors:
        family = f"main effects of {', '.join(factors)}, which are primary"
    elif primary_is_elsewhere(primary):
        family = "comparisons with controls, which are primary"
    else:
        family = "comparisons of rows with row 0"
    return (
        f"Exploratory: the study's error rate of 5 % covers only the {family}. It does"
        f" not cover the {what} of this table."
    )


def no_difference_sentence(metric: Metric, margin: float) -> str:
    """Returns what the verdict `no difference` means, for text below verdicts."""
    if not margin:
        return 'Without a margin, no row can get the verdict "no difference".'
    return (
        "A verdict of no difference means that a difference of"
        f" {margin:g}{metric.unit} or more is ruled out."
    )


def no_difference(metric: Metric, margin: float, how: str) -> str:
    """Returns what the verdict `no difference` means.

    Args:
        how: the test, in words.
    """
    if not margin:
        return (
            'No row can get the verdict "no difference", because the space declares no'
            " margin; write margin: NUMBER, the least difference that matters."
        )
    return (
        f"no difference: a difference of {margin:g}{metric.unit} or more is ruled out"
        f" ({how})."
    )


def sentence(effect: Effect, metric: Metric, margin: float) -> str:
    """Returns what can be said of an effect, as one sentence."""
    what = change_text(effect.changed, effect.labels)
    unit, digits = metric.unit, metric.digits
    shown = f" (tested in {effect.shown_by})" if effect.shown_by else ""
    cost = f" {cost_text(effect)}{shown}".rstrip()
    lost = "".join(f"; {number} {state}" for state, number in effect.left_out.items())
    if effect.mean is None:
        return f"{what}: no seed is completed in both rows yet{lost}."
    seeds = f"{len(effect.seeds)} seed{'s' if len(effect.seeds) != 1 else ''}{lost}"
    if effect.estimate is None:
        if len(effect.seeds) < 2:
            why = "one seed contains"
        else:
            why = "all differences are equal and contain"
        words = "inconclusive"
        if effect.withheld is Withheld.NOT_CONFIRMED:
            words = WITHHELD[effect.withheld]
        return (
            f"{what}: {words}, {fixed(effect.mean, digits, signed=True)}{unit}{cost}"
            f" ({seeds}: {why} no information about noise)."
        )
    value, _, interval = interval_text(effect.estimate, metric).partition(" (")
    range_ = f"{value}{unit} (95 % interval {interval[:-1]}, {seeds})"
    if effect.verdict in (Verdict.HELPS, Verdict.HURTS):
        why = STEP_DOWN if effect.is_step_down else ""
        return f"{what} {effect.verdict}: {range_}{cost}{why}."
    if effect.verdict is Verdict.SAME:
        return (
            f"{what} makes no difference of {margin:g}{unit} or more: {range_}{cost}."
        )
    if effect.withheld is not None:
        return f"{what}: {WITHHELD[effect.withheld]}; the difference is {range_}{cost}."
    return f"{what}: inconclusive, {range_}{cost}{_prediction(effect.further)}."


# Why a verdict says more than the interval beside it, as the end of a sentence.
STEP_DOWN = (
    "; the interval is for all rows at once and contains 0, and Holm's test decides"
)


def _prediction(further: int | None) -> str:
    if further is None:
        return ""
    if further > MOST:
        return f"; even {MOST} more seeds would probably leave it inconclusive"
    return (
        f"; about {_seeds(further)} would give an even chance of a conclusive verdict"
    )


def _seeds(further: int) -> str:
    return f"{further} more seed{'s' if further > 1 else ''}"


# Why there is no verdict, as a part of a sentence.
WITHHELD = {
    Withheld.UNFINISHED: "no verdict before all trials have ended",
    Withheld.KNOWN: "no verdict, because its results were known before the study was"
    " declared",
    Withheld.PARTIAL: "no verdict, because the study leaves out seeds that were trained"
    " or declared before",
    Withheld.DIVERGED: "no verdict, because seeds diverged and a mean of the others"
    " leaves out the failures",
    Withheld.PRUNED: "no verdict, because seeds were stopped early and a mean of the"
    " others leaves out the worse ones",
    Withheld.FAILED: "no verdict, because a trial of this row or of row 0 failed",
    Withheld.ABANDONED: "no verdict, because a trial of this row or of row 0 failed and"
    " is not tried again",
    Withheld.NOT_CONFIRMED: "no verdict, because the search did not choose it for"
    " training on fresh seeds",
    Withheld.BUDGET: "no verdict beside the other studies of the store, because its"
    " study has no level in the error budget, or a smaller one than p",
    Withheld.ACROSS: "no verdict of its own, because it is one of several sizes",
    Withheld.NOT_BETTER: "not better; whether it is worse is not tested, because row 0"
    " was chosen by its results",
    Withheld.NOT_TESTED: "not tested, because a primary comparison before it does not"
    " differ",
}


# What to do about it, as a sentence below a table.
WITHHELD_NOTES = {
    Withheld.UNFINISHED: "trials unfinished: verdicts are taken when all trials have"
    " ended. If a run could be stopped whenever it looks well, more than 5 % of"
    " verdicts would be false.",
    Withheld.KNOWN: "exploratory: the results of these rows were known before the study"
    " was declared, so they may be the reason to compare them. Seeds that were not"
    " trained before give verdicts.",
    Withheld.PARTIAL: "seeds left out: other seeds of these rows or of row 0 were trained"
    " or declared before, so these may be the ones that look well. Declare all seeds, or only seeds"
    " that were not trained before.",
    Withheld.DIVERGED: "seeds diverged: a seed of the row or of row 0 diverged, so a"
    " mean over the other seeds leaves out the failures. Report how often each row"
    " diverges, or train with a lower recipe.lr or with recipe.clip_grad. A seed of row 0"
    " takes the verdict of every row, and to leave it out does not bring it back, as its"
    " result was seen: declare seeds that no row has yet, for all rows.",
    Withheld.PRUNED: "seeds pruned: the scheduler stopped a seed of the row or of row"
    " 0, so a mean over the other seeds leaves out the worse ones. Train them to their end"
    " with scheduler: fifo.",
    Withheld.FAILED: "trials failed: a trial of the row or of row 0 failed. `ablate"
    " status` shows the error, and `ablate resume` tries the trial again. If it fails each"
    " time, `ablate abandon` ends that.",
    Withheld.ABANDONED: "trials abandoned: a trial of the row or of row 0 failed, and"
    " `ablate abandon` says that no run tries it again, so a mean over the other seeds may"
    " leave out the worse ones. `ablate abandon --undo` takes it back.",
    Withheld.NOT_CONFIRMED: "not confirmed: the search trains its best cells and row 0"
    " on fresh seeds, and only these cells get verdicts.",
    Withheld.BUDGET: "beyond the error budget: `ablate status --error-budget` lists the"
    " level of each study, and the verdicts that stand.",
    Withheld.ACROSS: "judged across sizes: this study is one size of a ladder, and its"
    " rows have their verdicts there: `ablate effects` with the name of the ladder, which"
    " ends before the last /.",
    Withheld.NOT_BETTER: "not better: row 0 is the best row so far and was chosen by its"
    " results, so a row can only help.",
    Withheld.NOT_TESTED: "not tested: the primary comparisons come first, and one of"
    " them does not differ.",
}


def extra_note(effects: Sequence[Effect]) -> list[str]:
    """Returns with which mean of row 0 rows are compared, if it has extra seeds."""
    numbers = sorted({len(e.seeds) + e.extra for e in effects if e.extra})
    if not numbers:
        return []
    return [
        f"Row 0 has extra seeds. A row is compared with two thirds of its mean over all"
        f" {' or '.join(map(str, numbers))} seeds, and one third of its mean over the"
        " seeds that the row has too."
    ]


def tuning_note(results: StudyResults, *, remedy: bool = True) -> list[str]:
    """Returns what the verdicts of a study with tuned rows are about, in words.

    Args:
        remedy: whether to say which key measures what they leave out.
    """
    tune = results.tune
    if tune is None:
        return []
    chooser = "each seed of each row" if tune.repeat else "each row"
    seeds = "1 seed" if tune.seeds == 1 else f"{tune.seeds} seeds"
    drawn = {
        "grid": "all combinations of the listed levels",
        "random": "the same random draws for all rows",
        "sobol": "the same points of a Sobol sequence for all rows",
    }[tune.draw]
    at = f" at {tune.size_text}" if tune.at else ""
    about = (
        "Verdicts are about the whole procedure, the choice included."
        if tune.repeat
        else "Verdicts are about the best of the settings that were tried, not about the"
        " best there are; the chance in the choice is not in the intervals"
        f"{' (`repeat: true` measures it)' if remedy else ''}."
    )
    return [
        f"{chooser[0].upper()}{chooser[1:]} is at its own best of"
        f" {len(tune.points)} settings of {', '.join(tune.names)} ({drawn}), chosen by"
        f" {tune.metric} on held-out images with {seeds} each{at}, and trained on fresh"
        " seeds."
        f" {about}"
    ]


def given_up_notes(effects: Sequence[Effect]) -> list[str]:
    """Returns which rows got no further seeds although they have no verdict."""
    rows = [effect.row for effect in effects if effect.is_given_up]
    if not rows:
        return []
    get = "gets" if len(rows) == 1 else "get"
    return [
        f"{rows_text(rows).capitalize()} {get} no further seeds: the probability of a"
        f" conclusive verdict with all of them is below {percent(LEAST_CHANCE)}. The"
        " interval of such a row is wide: it has the level of an early look."
    ]


def withheld_notes(effects: Sequence[Effect]) -> list[str]:
    """Returns why rows have no verdict, and what to do about it."""
    reasons = {effect.withheld for effect in effects}
    return [text for reason, text in WITHHELD_NOTES.items() if reason in reasons]


def percent(level: float) -> str:
    """Returns a level as `0.5 %`."""
    return f"{100 * level:.3g} %"


def error_rate(results: StudyResults) -> str:
    """Returns what holds for all verdicts of a study together, and where that ends."""
    return " ".join([f"{FALSE_VERDICTS}.", *reported_notes(results)])


def reported_notes(results: StudyResults) -> list[str]:
    """Returns what a reader has to know of runs that were trained elsewhere."""
    return list(results.reported.notes) if results.reported is not None else []


def generation_notes(results: StudyResults) -> list[str]:
    """Returns which generation a table shows."""
    number = results.before.generation
    if number == 1:
        return []
    base = base_name(results.name)
    return [
        f"Generation {number} of {base}: the file changed after results could be seen."
        f" The one before is {generation_name(base, number - 1)}."
    ]


def collapse_note(
    results: StudyResults, effects: Sequence[Effect], sign: str
) -> list[str]:
    """Returns the sentence below a table of effects; none if nothing collapsed.

    Args:
        sign: the format of a difference.
    """
    collapsed = collapsed_seeds(results)
    if not collapsed:
        return []
    by_row = {cell.index: cell for cell in results.cells}
    counts = [
        f"row {row}: {len(seeds)} of {len(by_row[row].values)}"
        for row, seeds in collapsed.items()
    ]
    assert results.chance is not None, "seeds collapse towards a known chance"
    note = (
        f"Collapsed, that is below {near_chance(results.chance):.3g} %"
        f" while most trainings are well above: {'; '.join(counts)} seeds. They are in"
        " the means and in the verdicts."
    )
    without = []
    for effect in effects:
        mean = _mean_without(effect, by_row, collapsed)
        if mean is not None:
            without.append(f"row {effect.row} {mean:{sign}}")
    if without:
        note += f" Differences without them, which leave out the failures: {'; '.join(without)}."
    return [note]


def _mean_without(
    effect: Effect,
    by_row: Mapping[int, CellResult],
    collapsed: Mapping[int, Sequence[int]],
) -> float | None:
    """Returns the mean difference over seeds in which neither cell collapsed.

    None if there are no such seeds, or if no seed collapsed.
    """
    lost = {*collapsed.get(effect.row, ()), *collapsed.get(effect.against, ())}
    kept = [seed for seed in effect.seeds if seed not in lost]
    if not kept or not lost:
        return None
    cell, other = by_row[effect.row].values, by_row[effect.against].values
    return mean_of(cell[seed] - other[seed] for seed in kept)


def _without_estimate(effect: Effect) -> str:
    if effect.mean is None:
        return "no result yet"
    if len(effect.seeds) > 1:
        return "inconclusive: no spread"
    return "inconclusive: more seeds"


def verdict_text(effect: Effect) -> str:
    """Returns the verdict as a cell of a table."""
    more = ["step-down"] if effect.is_step_down else []
    if effect.shown_by:
        more.append(f"tested in {effect.shown_by}")
    return f"{_verdict(effect)} ({'; '.join(more)})" if more else _verdict(effect)


def _verdict(effect: Effect) -> str:
    if effect.verdict is not Verdict.INCONCLUSIVE:
        return str(effect.verdict)
    if effect.withheld is not None:
        return str(effect.withheld)
    if effect.estimate is None:
        return _without_estimate(effect)
    if effect.further is None:
        return "inconclusive"
    if effect.further <= MOST:
        return f"inconclusive: about {_seeds(effect.further)}"
    return f"inconclusive: more than {MOST} further seeds"
