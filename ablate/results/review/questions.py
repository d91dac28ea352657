"""The questions of a review, the most serious first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ablate.records import (
    VARIED,
    CellResult,
    Level,
    Settings,
    Source,
    Status,
)
from ablate.records.stored import Circumstances
from ablate.report.collapse import collapsed_seeds, is_near_chance
from ablate.report.effect import Effect
from ablate.report.numbers import fixed
from ablate.report.verdicts import Verdict, Withheld
from ablate.report.wording import change_text, rows_text
from ablate.results.review.finding import Finding, Read
from ablate.results.review.generations import (
    changed,
    compared_elsewhere,
    known_before,
    left_out_seeds,
)
from ablate.results.review.tuning import at_edge, few_settings
from ablate.statistics.numbers import mean_of
from ablate.statistics.seeds_needed import MOST
from ablate.text import escape

# Below this number of seeds a spread is a guess.
FEW_SEEDS = 3
# The most further seeds that are proposed at once.
MOST_MORE = 50
# The most rows that a finding describes one by one.
MOST_NAMED = 6
# A variant counts as more expensive from one per cent on.
COSTS_MORE = 1.01
# What a seed usually decides, in words.
WORDS_OF: Mapping[Source, str] = {
    "init": "initial weights",
    "order": "order of images and augmentation",
}
# Prefixes of factors that define how a cell is trained, not what its network is.
TRAINING = ("recipe.", "data.", "pretrained")
# The least number of cells, row 0 included, of which one is chosen.
FEWEST_CHOICES = 3
# The least number of seeds that gives a verdict.
FEWEST_SEEDS = 2
# Designs that change several factors at once on purpose.
CONFOUNDED = ("fractional", "plackett-burman", "random")


def _unfinished(study: Read) -> Iterator[Finding]:
    counts: Counter[Status] = Counter()
    for cell in study.results.cells:
        counts.update(cell.statuses.values())
    total = sum(counts.values())
    for count, what in (
        (counts[Status.FAILED], "failed"),
        (counts[Status.PLANNED] + counts[Status.RUNNING], "have not finished"),
    ):
        if count:
            yield Finding(
                "unfinished",
                f"{count} of {total} trials {what}.",
                f"ablate resume {escape.shell(study.results.name)}{study.parts}",
            )


def _chosen_on_test(study: Read) -> Iterator[Finding]:
    """A search or a scheduler decides by results on the test set."""
    if study.declared.data.validation:
        return
    by = ""
    if study.declared.strategy:
        by = f"strategy {study.declared.strategy.name}"
    elif _tunes_by_own_metric(study):
        by = "tune"
    elif study.declared.scheduler.name != "fifo":
        by = f"scheduler {study.declared.scheduler.name}"
    remedy = (
        " Hold out images for validation: data: {name:"
        f" {study.declared.data.name}, validation: 0.1}}."
    )
    if study.declared.network.trainer:
        remedy = " Report a metric that the trainer measures on data held out for it."
    if by:
        yield Finding(
            "chosen on the test set",
            f"{by} selects by {study.results.metric.name} on the test set, and the same"
            f" value is reported, so the best result is too optimistic.{remedy}",
            study.again(),
        )


def _tunes_by_own_metric(study: Read) -> bool:
    """Whether rows choose their settings by the value that the table shows."""
    tune = study.declared.tune
    return tune is not None and tune.metric == study.results.metric.measured


def _baseline_differs(study: Read) -> Iterator[Finding]:
    """Variants differ from row 0 in both their training and their network."""
    if study.is_search or study.declared.design.name in CONFOUNDED:
        return
    baseline_network, baseline_training = _parts(study.results.cells[0])
    parts = {cell.index: _parts(cell) for cell in study.results.cells}
    confounded = [
        row
        for row, (network, training) in parts.items()
        if network != baseline_network
        and training != baseline_training
        and (baseline_network, training) not in parts.values()
    ]
    if confounded:
        yield Finding(
            "baseline trained differently",
            f"{rows_text(confounded)}: both the network and the training differ from row 0,"
            " so their effects cannot be separated. Add a row with the network of row 0"
            " and the training of these rows.",
            study.again(),
        )


def _parts(cell: CellResult) -> tuple[Settings, Settings]:
    """Returns the levels that define a cell's network, and its training."""
    network: dict[str, Level] = {}
    training: dict[str, Level] = {}
    for name, level in cell.levels.items():
        (training if name.startswith(TRAINING) else network)[name] = level
    return network, training


def _mixed(study: Read) -> Iterator[Finding]:
    """Trials of one comparison ran on different hardware, versions or code."""
    kinds: dict[str, Callable[[Circumstances], str]] = {
        "hardware": lambda attempt: (
            attempt.gpus if attempt.device.startswith("cuda") else attempt.cpu
        ),
        "devices": lambda attempt: attempt.device.partition(":")[0],
        "threads": lambda attempt: str(attempt.threads),
        "versions of torch": lambda attempt: attempt.torch,
        "versions of timm": lambda attempt: attempt.timm,
        "versions of ablate": lambda attempt: attempt.ablate,
        "commits": lambda attempt: attempt.commit,
    }
    for what, of in kinds.items():
        groups: dict[str, list[Circumstances]] = {}
        for attempt in study.circumstances:
            groups.setdefault(of(attempt), []).append(attempt)
        if len(groups) > 1:
            rarest = min(groups.values(), key=len)
            yield Finding(
                f"mixed {what}",
                f"the compared rows ran with different {what}: {_group_texts(groups)}.",
                f"ablate reproduce {escape.shell(rarest[0].trial)}{study.parts}",
            )
    changed = [attempt for attempt in study.circumstances if attempt.dirty]
    if changed:
        yield Finding(
            "changed checkout",
            f"{len(changed)} trials were trained from a checkout with uncommitted"
            " changes, so their code cannot be recovered. Commit the changes, then"
            " check that a trial gives the same result.",
            f"ablate reproduce {escape.shell(changed[0].trial)}{study.parts}",
        )


def _group_texts(groups: Mapping[str, Sequence[Circumstances]]) -> str:
    texts = []
    for kind, trials in groups.items():
        rows = sorted({trial.row for trial in trials})
        texts.append(f"{kind or 'unknown'}: {rows_text(rows)}")
    return "; ".join(texts)


def _left_out(study: Read) -> Iterator[Finding]:
    """Some seeds have no result, and no mean includes them."""
    diverged = _seeds_of(study, Status.DIVERGED)
    if diverged:
        remedy = (
            "or train with a lower recipe.lr or with clipped gradients"
            " (recipe.clip_grad)"
        )
        if study.declared.network.trainer:
            remedy = "or change what the trainer does"
        yield _left_out_finding(
            study,
            Status.DIVERGED,
            diverged,
            f"Report this number beside the mean, {remedy}",
        )
    # Pruning is the purpose of a scheduler. But if other seeds of the row are in a
    # mean, the pruned ones bias it.
    pruned = {
        row: count
        for row, count in _seeds_of(study, Status.PRUNED).items()
        if study.by_row[row].values
    }
    if pruned:
        yield _left_out_finding(
            study,
            Status.PRUNED,
            pruned,
            "Train the pruned seeds to their end with scheduler: fifo",
        )


def _seeds_of(study: Read, status: Status) -> dict[int, int]:
    """Returns the number of seeds with this status, by row, if there are any."""
    counts = {
        cell.index: list(cell.statuses.values()).count(status)
        for cell in study.results.cells
    }
    return {row: count for row, count in counts.items() if count}


def _left_out_finding(
    study: Read, status: Status, counts: Mapping[int, int], remedy: str
) -> Finding:
    texts = [
        f"row {row}: {count} of {len(study.by_row[row].statuses)}"
        for row, count in counts.items()
    ]
    return Finding(
        f"{status} seeds",
        f"{', '.join(texts)} seeds have the status {status}; each mean includes only"
        f" the other seeds. {remedy}.",
        study.again(),
    )


def _too_few_seeds(study: Read) -> Iterator[Finding]:
    repeated = any(len(cell.values) > 1 for cell in study.results.cells)
    if study.is_search and not repeated:
        return
    few: list[Effect] = []
    inconclusive: list[Effect] = []
    margin = study.declared.criterion.margin
    for effect in study.effects:
        if effect.withheld is Withheld.NOT_CONFIRMED:
            continue
        count = len(effect.seeds)
        # A difference below the margin is no claim that needs a verdict.
        unsure = (
            effect.verdict is Verdict.INCONCLUSIVE
            and effect.withheld is None
            and effect.mean is not None
            and abs(effect.mean) >= margin
        )
        if count and unsure:
            inconclusive.append(effect)
        elif count and count < FEW_SEEDS:
            few.append(effect)
    # One number of seeds for the whole study: findings with different numbers would
    # contradict each other.
    together = [*few, *inconclusive]
    if few:
        yield _few_seeds_finding(
            study, "Too few seeds to estimate the noise", few, together
        )
    if inconclusive:
        least = f"{margin:g}{study.results.metric.unit}"
        yield _few_seeds_finding(
            study,
            f"Inconclusive, although the difference from row 0 is at least {least}",
            inconclusive,
            together,
        )


def _not_confirmed(study: Read) -> Iterator[Finding]:
    """The best of many cells is partly lucky on the seeds that chose it."""
    strategy = study.declared.strategy
    if strategy is None or strategy.confirm:
        return
    means = {
        cell.index: mean_of(cell.values.values())
        for cell in study.results.cells
        if cell.values
    }
    repeated = any(len(cell.values) > 1 for cell in study.results.cells)
    if len(means) < (FEWEST_CHOICES if repeated else FEWEST_CHOICES - 1):
        return
    better = max if study.results.direction == "max" else min
    best = better(means, key=lambda row: means[row])
    yield Finding(
        "not confirmed",
        f"row {best} was chosen as the best of {len(means)} cells, and its mean is"
        " over the seeds that decided this choice, so a part of its lead is luck. Add"
        f" confirm: 5 to the strategy in {study.file}: it trains the best cells and row 0 on"
        " fresh seeds.",
        study.again(),
    )


def _few_seeds_finding(
    study: Read, judgement: str, effects: Sequence[Effect], together: Sequence[Effect]
) -> Finding:
    """The rows that a judgement holds for, with what adds seeds to them.

    Args:
        together: all rows that need seeds; one number of seeds is proposed for them.
    """
    declared = study.declared
    count = max(len(effect.seeds) for effect in together)
    further = max(_proposed(effect) for effect in together)
    most = max(FEW_SEEDS + 3, len(declared.seeds.numbers) + further)
    # The option cannot add to listed seeds, nor to trials that were stopped early.
    can_add = (
        declared.seeds.numbers == tuple(range(len(declared.seeds.numbers)))
        and declared.scheduler.name == "fifo"
        and declared.tune is None
        and (declared.seeds.looks is not None or count < FEWEST_SEEDS)
    )
    hint = ""
    if study.results.confirmation_seeds:
        can_add = False
        hint = f" Write `confirm: {count + further}` in the strategy of {study.file}."
    elif not can_add:
        fifo = "" if declared.scheduler.name == "fifo" else ", with `scheduler: fifo`"
        seeds = str(most)
        if declared.seeds.baseline is not None:
            seeds = f"{{count: {most}, baseline: {declared.seeds.baseline + further}}}"
        hint = f" Write `seeds: {seeds}` in {study.file}{fifo}."
    option = ""
    if can_add and not study.is_search:
        option = f"--until-decided {most}"
    return Finding(
        "too few seeds",
        f"{judgement}: {_few_seeds_text(study, effects)}.{hint}"
        f"{_not_enough(effects, further)}",
        study.again(option),
    )


def _proposed(effect: Effect) -> int:
    """Returns the number of further seeds that is proposed for a row."""
    return min(effect.further or FEW_SEEDS, MOST_MORE)


def _few_seeds_text(study: Read, effects: Sequence[Effect]) -> str:
    """Returns each row with its difference and its number of seeds."""
    metric = study.results.metric
    texts = []
    for effect in effects[:MOST_NAMED]:
        count = len(effect.seeds)
        seeds = "seed" if count == 1 else "seeds"
        assert effect.mean is not None, "a row with seeds has a mean"
        difference = f"{fixed(effect.mean, metric.digits, signed=True)}{metric.unit}"
        change = change_text(effect.changed)
        texts.append(f"row {effect.row} ({change}: {difference} on {count} {seeds})")
    if len(effects) > MOST_NAMED:
        texts.append(f"{len(effects) - MOST_NAMED} more rows")
    return ", ".join(texts)


def _not_enough(effects: Sequence[Effect], further: int) -> str:
    """Returns which rows need more seeds than are proposed; empty if there are none."""
    further_by_row = {effect.row: effect.further or 0 for effect in effects}
    texts = [
        f"row {row} needs {'more than' if number > MOST else 'about'}"
        f" {min(number, MOST)} more seeds"
        for row, number in further_by_row.items()
        if number > MOST_MORE
    ]
    if not texts:
        return ""
    return (
        f" For an even chance of a conclusive verdict, {'; '.join(texts[:MOST_NAMED])}."
        f" At most {further} are proposed at a time."
    )


def _rows_are(rows: Sequence[int]) -> str:
    """Returns rows as the beginning of a sentence: `Row 4 is`, `Rows 4, 5 are`."""
    text = rows_text(rows)
    return f"{text[0].upper()}{text[1:]} {'is' if len(rows) == 1 else 'are'}"


def _no_control(study: Read) -> Iterator[Finding]:
    """Variants help and cost more, and nothing of the same cost is compared."""
    if study.is_search:
        return
    if study.declared.control:
        yield from _no_near_control(study)
        return
    rows = [
        effect.row
        for effect in study.effects
        if effect.verdict is Verdict.HELPS and _costs_more(effect)
    ]
    if rows:
        yield Finding(
            "no iso-cost control",
            f"{_rows_are(rows)} better than row 0, but also more expensive. A wider"
            " baseline of the same cost might be equally good. Add `control:"
            f" iso-flops` to {study.file}.",
            study.again(),
        )


def _no_near_control(study: Read) -> Iterator[Finding]:
    """Variants help and cost more than the baseline in every width near them."""
    cost = study.declared.control.removeprefix("iso-")
    controlled = {cell.control_of for cell in study.results.cells}
    rows = [
        effect.row
        for effect in study.effects
        if effect.verdict is Verdict.HELPS
        and effect.row not in controlled
        and effect.cost is not None
        and effect.reference_cost is not None
        and getattr(effect.cost, cost)
        > COSTS_MORE * getattr(effect.reference_cost, cost)
    ]
    if rows:
        yield Finding(
            "no iso-cost control",
            f"{_rows_are(rows)} better than row 0, but also more expensive. No other"
            " width of the baseline has a cost nearer to that of these rows, so row 0 is"
            f" the control. Report this, or use a wider backbone in {study.file}: there,"
            " a step in width changes the cost by a smaller share, so a control can come"
            " nearer.",
            study.again(),
        )


def _costs_more(effect: Effect) -> bool:
    cost = effect.cost
    reference = effect.reference_cost
    if cost is None or reference is None:
        return False
    return (
        cost.flops > COSTS_MORE * reference.flops
        or cost.params > COSTS_MORE * reference.params
    )


def _never_alone(study: Read) -> Iterator[Finding]:
    """Some factors only ever changed together with others."""
    if study.is_search or study.declared.design.name in CONFOUNDED:
        return
    baseline = study.declared.factors.baseline
    if study.declared.design.name == "rows":
        baseline = study.results.cells[0].levels
    changes = [
        _without(cell.levels, baseline)
        for cell in study.results.cells
        if (cell.role != "control" and cell.statuses) or cell.same_as is not None
    ]
    lonely = [
        name for name in study.results.factors if _is_always_with_others(name, changes)
    ]
    if lonely:
        yield Finding(
            "never ablated",
            f"{', '.join(lonely)}: no row adds this factor alone, and no row leaves"
            " out this factor alone, so its separate effect is unknown. In"
            f" {study.file}, add a row that adds or leaves out only this factor, or use"
            " design: grid, add-one-in or leave-one-out.",
            study.again(),
        )


def _without(levels: Settings, others: Settings) -> dict[str, Level]:
    """Returns the levels that differ from the others."""
    return {name: level for name, level in levels.items() if level != others.get(name)}


def _is_always_with_others(name: str, changes: Sequence[Settings]) -> bool:
    """Whether a factor changes, but never alone and never as the only one left out."""
    together = [change for change in changes if name in change and len(change) > 1]
    if not together or any(set(change) == {name} for change in changes):
        return False
    for change in together:
        left_out = {key: level for key, level in change.items() if key != name}
        if left_out in changes:
            return False
    return True


def _near_chance(study: Read) -> Iterator[Finding]:
    """Networks that have learnt nothing differ only by luck."""
    classes = study.declared.data.classes
    chance = study.results.chance
    if chance is not None and is_near_chance(study.results):
        best = max(max(cell.values.values(), default=0) for cell in study.results.cells)
        if study.declared.network.head:
            without = f"a network that has learnt nothing reaches about {chance:.1f} %"
        else:
            without = f"guessing among {classes} classes gives {chance:.1f} %"
        yield Finding(
            "near chance",
            f"the best trial reaches {best:.1f} %, and {without}. Train longer,"
            f" or check the recipe in {study.file} (`ablate plan` prints it).",
            study.again(),
        )


def _collapsed(study: Read) -> Iterator[Finding]:
    """Some trainings completed near chance, while most others did not."""
    counts = {row: len(seeds) for row, seeds in collapsed_seeds(study.results).items()}
    if counts:
        texts = [
            f"row {row}: {count} of {len(study.by_row[row].values)}"
            for row, count in counts.items()
        ]
        yield Finding(
            "collapsed seeds",
            f"{', '.join(texts)} trainings ended near chance, while most others ended"
            " well above it. The means include the trainings near chance. Report how"
            " many trainings of each row collapsed. A lower recipe.lr, a longer warm-up"
            " (recipe.warmup_epochs) or clipped gradients (recipe.clip_grad) may prevent"
            f" collapses; set them in {study.file}.",
            study.again(),
        )


def _noise_left_out(study: Read) -> Iterator[Finding]:
    """A source of noise is the same for all seeds."""
    same = [WORDS_OF[source] for source in VARIED if source not in study.results.vary]
    if same:
        yield Finding(
            "noise left out",
            f"All seeds have the same {' and '.join(same)}, so intervals and verdicts"
            " do not include the noise that different ones would add. Others who train"
            " these models will see this noise. Remove the key `vary` from `seeds`"
            f" in {study.file}.",
            study.again(),
        )


QUESTIONS: tuple[Callable[[Read], Iterator[Finding]], ...] = (
    _near_chance,
    _collapsed,
    _chosen_on_test,
    _not_confirmed,
    changed,
    compared_elsewhere,
    known_before,
    left_out_seeds,
    _baseline_differs,
    _mixed,
    _left_out,
    at_edge,
    few_settings,
    _noise_left_out,
    _too_few_seeds,
    _no_control,
    _never_alone,
    _unfinished,
)
