"""Reviews a study as a sceptical referee would.

Each finding says what is wrong, and what to type to fix it.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablate import escape
from ablate.declared import declared_space
from ablate.records import (
    CellResult,
    History,
    Level,
    Settings,
    Space,
    Status,
    StudyResults,
    share_of_phase,
)
from ablate.redeclared import changes
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.verdicts import LEVEL, Verdict, Withheld
from ablate.report.wording import change_text
from ablate.store.declarations import IDENTITY, Declaration
from ablate.store.reader import Reader
from ablate.tasks import tasks

# Below this multiple of chance, a network has learnt next to nothing.
NEAR_CHANCE = 2
# Below this number of seeds a spread is a guess.
FEW_SEEDS = 3
# The most further seeds that are proposed at once.
MOST_MORE = 50
# A variant counts as more expensive from one per cent on.
COSTS_MORE = 1.01
# Prefixes of factors that define how a cell is trained, not what its network is.
TRAINING = ("recipe.", "data.", "pretrained")
# The least number of seeds that gives a verdict.
FEWEST_SEEDS = 2
# The most changes of a declaration that are listed.
MOST_CHANGES = 5
# Designs that change several factors at once on purpose.
CONFOUNDED = ("fractional", "plackett-burman", "random")


@dataclass(frozen=True)
class Finding:
    """An objection that a referee would raise, and the command that fixes it."""

    name: str
    text: str
    command: str


def command(declared: Space, file: str, more: str = "") -> str:
    """Returns the command that runs a study as it was run.

    It includes `--until-decided` if the study used it; without the option, the study
    would lose the seeds that were added.
    """
    if declared.looks and "--until-decided" not in more:
        until = f"--until-decided {declared.looks.most}"
    else:
        until = ""
    words = (f"ablate run {escape.shell(file)}{with_parts(declared)}", until, more)
    return " ".join(filter(None, words))


def with_parts(declared: Space) -> str:
    """Returns the options that name the files of the user's parts, each after a blank."""
    return "".join(f" --with {escape.shell(part)}" for part in declared.parts)


@dataclass(frozen=True)
class Read:
    """Everything that the questions of a review look at.

    It has the results of a study, its declaration, file and verdicts, and what its
    trials ran on.
    """

    results: StudyResults
    declared: Space
    file: str
    effects: Sequence[Effect]
    circumstances: Sequence[Mapping[str, Any]]
    where: str = ""
    declarations: Sequence[Declaration] = ()
    trained: Sequence[Mapping[str, Any]] = ()
    by_row: Mapping[int, CellResult] = field(default_factory=dict)

    @property
    def is_search(self) -> bool:
        return self.declared.strategy is not None

    @property
    def parts(self) -> str:
        """The options with which a command finds the user's parts and the store."""
        return f"{with_parts(self.declared)}{self.where}"

    def again(self, more: str = "") -> str:
        """Returns the command that runs the study again."""
        return command(self.declared, self.file, more) + self.where


def review(name: str, url: str, where: str = "") -> list[Finding]:
    """Returns all findings on a study, the most serious first; empty for a sound one.

    Args:
        where: what to add to each command, such as ` --runs DIR`.

    Raises:
        UnknownName: there is no such study.
    """
    with Reader(url) as reader:
        stored = reader.study(name)
        results = reader.results(name)
        circumstances = reader.circumstances(name)
        declarations = reader.declarations(name)
        # Reading them takes long in a large study, and is needed in few.
        known = any(-1 in cell.phase_of.values() for cell in results.cells)
        trained = reader.identities(name) if known else []
    declared = declared_space(stored)
    declared = replace(declared, margin=results.history.margin(declared.margin))
    verdicts = effects(results, declared.margin, declared.looks)
    by_row = {cell.index: cell for cell in results.cells}
    study = Read(
        results=results,
        declared=declared,
        file=stored.file,
        effects=verdicts,
        circumstances=circumstances,
        where=where,
        declarations=declarations,
        trained=trained,
        by_row=by_row,
    )
    findings: list[Finding] = []
    for question in QUESTIONS:
        findings += question(study)
    return findings


def _unfinished(study: Read) -> Iterator[Finding]:
    counts: Counter[Status] = Counter()
    for cell in study.results.cells:
        counts.update(cell.statuses.values())
    for count, what in (
        (counts[Status.FAILED], "failed"),
        (counts[Status.PLANNED] + counts[Status.RUNNING], "not finished"),
    ):
        if count:
            yield Finding(
                "unfinished",
                f"Trials {what}: {count}.",
                f"ablate resume {escape.shell(study.results.name)}{study.parts}",
            )


def _chosen_on_test(study: Read) -> Iterator[Finding]:
    """A search or a scheduler decides by results on the test set."""
    if study.declared.data.validation:
        return
    by = ""
    if study.declared.strategy:
        by = f"strategy {study.declared.strategy.name}"
    elif study.declared.scheduler.name != "fifo":
        by = f"scheduler {study.declared.scheduler.name}"
    remedy = (
        " Hold out images for validation: data: {name:"
        f" {study.declared.data.name}, validation: 0.1}}."
    )
    if study.declared.trainer:
        remedy = " Report a metric that the trainer measures on data held out for it."
    if by:
        yield Finding(
            "chosen on the test set",
            f"{by} selects by {study.results.metric.name} on the test set, and the same"
            f" value is reported, so the best result is too optimistic.{remedy}",
            study.again(),
        )


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
            f"{_rows(confounded)}: both the network and the training differ from row 0,"
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
    kinds: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "hardware": lambda one: (
            one["gpus"] if one["device"].startswith("cuda") else one["cpu"]
        ),
        "devices": lambda one: one["device"].partition(":")[0],
        "threads": lambda one: str(one["threads"]),
        "versions of torch": lambda one: one["torch"],
        "versions of timm": lambda one: one["timm"],
        "versions of ablate": lambda one: one["ablate"],
        "commits": lambda one: one["commit"],
    }
    for what, of in kinds.items():
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for one in study.circumstances:
            groups.setdefault(of(one), []).append(one)
        if len(groups) > 1:
            rarest = min(groups.values(), key=len)
            yield Finding(
                f"mixed {what}",
                f"the compared rows ran with different {what}: {_group_texts(groups)}.",
                f"ablate reproduce {escape.shell(rarest[0]['trial'])}{study.parts}",
            )
    changed = [one for one in study.circumstances if one["dirty"]]
    if changed:
        yield Finding(
            "changed checkout",
            f"{len(changed)} trials were trained from a checkout with uncommitted"
            " changes, so their code cannot be recovered. Commit the changes, then"
            " check whether the trials give the same results.",
            f"ablate reproduce {escape.shell(changed[0]['trial'])}{study.parts}",
        )


def _group_texts(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    texts = []
    for kind, trials in groups.items():
        rows = sorted({trial["row"] for trial in trials})
        texts.append(f"{kind or 'unknown'}: {_rows(rows)}")
    return "; ".join(texts)


def _left_out(study: Read) -> Iterator[Finding]:
    """Some seeds have no result, and no mean includes them."""
    diverged = _seeds_of(study, Status.DIVERGED)
    if diverged:
        remedy = (
            "or train with a lower recipe.lr or with clipped gradients"
            " (recipe.clip_grad)"
        )
        if study.declared.trainer:
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
        yield from _best_of_many(study)
        return
    for effect in study.effects:
        count = len(effect.seeds)
        unsure = (
            effect.verdict is Verdict.INCONCLUSIVE
            and effect.withheld is None
            and effect.mean is not None
            and abs(effect.mean) >= study.declared.margin
        )
        if count and (count < FEW_SEEDS or unsure):
            yield _few_seeds_finding(study, effect, unsure)


def _best_of_many(study: Read) -> Iterator[Finding]:
    """The best of many single trainings is partly luck."""
    values = {
        cell.index: next(iter(cell.values.values()))
        for cell in study.results.cells
        if cell.values
    }
    if not values:
        return
    better = max if study.results.direction == "max" else min
    best = better(values, key=lambda row: values[row])
    yield Finding(
        "too few seeds",
        f"row {best} is the best of many cells with one seed each, so a part of its"
        " lead is luck. Train the best cells with more seeds.",
        study.again(),
    )


def _few_seeds_finding(study: Read, effect: Effect, unsure: bool) -> Finding:
    declared = study.declared
    count = len(effect.seeds)
    further = min(effect.further or 3, MOST_MORE)
    most = max(FEW_SEEDS + 3, len(declared.seeds) + further)
    # The option cannot add to listed seeds, nor to trials that were stopped early. After
    # a verdict was possible, its looks would share what is left of the level.
    can_add = (
        declared.seeds == tuple(range(len(declared.seeds)))
        and declared.scheduler.name == "fifo"
        and (declared.looks is not None or count < FEWEST_SEEDS)
    )
    hint = ""
    if not can_add:
        fifo = "" if declared.scheduler.name == "fifo" else ", with scheduler: fifo"
        hint = f" Write seeds: {most} in {study.file}{fifo}."
    option = ""
    if can_add and not study.is_search:
        option = f"--until-decided {most}"
    metric = study.results.metric
    difference = f"{effect.mean:+.{metric.digits}f}{metric.unit}"
    seeds = "seed" if count == 1 else "seeds"
    if unsure:
        judgement = "which is inconclusive"
    else:
        judgement = "too few to estimate the noise"
    return Finding(
        "too few seeds",
        f"row {effect.row} ({change_text(effect.changed)}): {difference} on {count}"
        f" {seeds}, {judgement}.{hint}",
        study.again(option),
    )


def _no_control(study: Read) -> Iterator[Finding]:
    """Variants help and cost more, and nothing of the same cost is compared."""
    if study.declared.control or study.is_search:
        return

    rows = [
        effect.row
        for effect in study.effects
        if effect.verdict is Verdict.HELPS and _costs_more(effect)
    ]
    if rows:
        yield Finding(
            "no iso-cost control",
            f"{_rows(rows)}: better than row 0, but also more expensive. A wider"
            " baseline of the same cost might be equally good. Add `control:"
            f" iso-flops` to {study.file}.",
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
    baseline = study.declared.baseline
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
            f"{', '.join(lonely)}: never added alone and never left out alone, so the"
            " separate effect is unknown. Add such a row to"
            f" {study.file}, or use design: grid, add-one-in or leave-one-out.",
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


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:8]))
    if len(rows) > 8:
        shown += ", ..."
    if len(rows) == 1:
        return f"row {shown}"
    return f"rows {shown}"


def _near_chance(study: Read) -> Iterator[Finding]:
    """Networks that have learnt nothing differ only by luck."""
    classes = study.declared.data.classes
    values: list[float] = []
    for cell in study.results.cells:
        values += cell.values.values()
    task = tasks().get(study.declared.task)
    if task is None or classes < 2 or not values:
        return
    chance = task.chance(classes).get(study.results.metric.name)
    if chance is None:
        return
    if max(values) < NEAR_CHANCE * chance:
        if study.declared.head:
            without = f"a network that has learnt nothing reaches about {chance:.1f} %"
        else:
            without = f"guessing among {classes} classes gives {chance:.1f} %"
        yield Finding(
            "near chance",
            f"the best trial reaches {max(values):.1f} %, and {without}. Train longer,"
            f" or check the recipe in {study.file} (`ablate plan` prints it).",
            study.again(),
        )


def _declared_again(study: Read) -> Iterator[Finding]:
    """The study was declared differently after results of it existed."""
    made = []
    for before, after in itertools.pairwise(study.declarations):
        if not after.completed:
            continue
        changed = changes(before.space, after.space)
        if len(before.space["seeds"]) < FEWEST_SEEDS:
            # A single seed gives no verdict that could be the reason to add more.
            changed = [one for one in changed if not one.startswith("seeds: ")]
        shown = "; ".join(changed[:MOST_CHANGES])
        if len(changed) > MOST_CHANGES:
            shown += f"; {len(changed) - MOST_CHANGES} more"
        if changed:
            made.append(f"after {after.completed} completed trials: {shown}")
    if made:
        yield Finding(
            "declared again",
            f"the study was declared differently {', then '.join(made)}."
            f" {_consequence(study.results.history)} State these changes with the"
            " results, or repeat the comparison under a `name:` of its own in"
            f" {study.file}, with seeds that were not trained before.",
            study.again(),
        )


def _consequence(history: History) -> str:
    """Returns what declaring a study again means for its verdicts."""
    if history.changed:
        return f"There is no verdict any more ({history.changed})."
    if history.last:
        level = 100 * LEVEL * share_of_phase(history.last)
        return (
            f"What is new is tested at {level:.2g} % instead of"
            f" {100 * LEVEL * share_of_phase(0):g} %."
        )
    return "No row could be compared before, so the level of its verdicts is the same."


def _known_before(study: Read) -> Iterator[Finding]:
    """Results of the study existed before it was declared."""
    rows = [effect.row for effect in study.effects if effect.withheld is Withheld.KNOWN]
    if rows:
        yield Finding(
            "known before",
            f"{_rows(rows)}: the results were known before the study was declared, so"
            " they may be the reason to compare these rows. They are exploratory. Train"
            f" them with seeds that were not trained before: seeds: [...] in"
            f" {study.file}.",
            study.again(),
        )


def _seeds_left_out(study: Read) -> Iterator[Finding]:
    """Other seeds of the rows were trained before, and the study leaves them out."""
    begin = study.results.history.begins[0]
    # Rows of which some seeds were known. A study may well have new seeds only.
    own: dict[int, str] = {}
    for trial in study.trained:
        if trial["own"] and trial["ended_at"] < begin:
            own[trial["row"]] = _planned(trial)
    left_out: dict[int, set[int]] = {}
    for trial in study.trained:
        row, seed = trial["row"], trial["seed"]
        known = trial["ended_at"] < begin
        declared = study.by_row[row].statuses
        if known and _planned(trial) == own.get(row) and seed not in declared:
            left_out.setdefault(row, set()).add(seed)
    if left_out:
        seeds = sorted(set().union(*left_out.values()))
        yield Finding(
            "seeds left out",
            f"{_rows(sorted(left_out))}: seeds {', '.join(map(str, seeds[:8]))} were"
            " trained before the study was declared, and it leaves them out. Declare"
            f" all seeds in {study.file}.",
            study.again(),
        )


def _planned(trial: Mapping[str, Any]) -> str:
    """Returns what identifies a trial beside its network and its seed."""
    return json.dumps([trial[key] for key in IDENTITY], sort_keys=True)


QUESTIONS: tuple[Callable[[Read], Iterator[Finding]], ...] = (
    _near_chance,
    _chosen_on_test,
    _declared_again,
    _known_before,
    _seeds_left_out,
    _baseline_differs,
    _mixed,
    _left_out,
    _too_few_seeds,
    _no_control,
    _never_alone,
    _unfinished,
)
