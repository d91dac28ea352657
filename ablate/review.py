"""Reads a study as a sceptical referee would.

Each finding says what is wrong, and what to type to fix it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate import escape, space
from ablate.records import CellResult, Level, Settings, Space, Status, StudyResults
from ablate.report.effects import Effect, effects
from ablate.report.verdicts import Verdict
from ablate.report.wording import UNITS, change_text
from ablate.store.reader import Reader

# Below this multiple of guessing, a network has learnt next to nothing.
NEAR_CHANCE = 2
# Below this number of seeds a spread is a guess.
FEW_SEEDS = 3
# Further seeds that are proposed at once.
MOST_MORE = 50
# A variant costs more from one per cent on.
COSTS_MORE = 1.01
# Beginnings of factors that say how a cell is trained, and not what its network is.
TRAINING = ("recipe.", "data.", "pretrained")
# Designs that change several factors at a time on purpose.
CONFOUNDED = ("fractional", "plackett-burman", "random")


@dataclass(frozen=True)
class Finding:
    """What a referee would object to, and the command that fixes it."""

    name: str
    text: str
    command: str


def command(declared: Space, file: str, more: str = "") -> str:
    """What runs a study as it was run; without its option, one that was run until
    decided would be cut back.
    """
    if declared.looks and "--until-decided" not in more:
        until = f"--until-decided {declared.looks.most}"
    else:
        until = ""
    return " ".join(filter(None, ("ablate run", escape.shell(file), until, more)))


@dataclass(frozen=True)
class Read:
    """A study as it is read: results, declaration, file, verdicts, and on what its
    trials ran.
    """

    results: StudyResults
    declared: Space
    file: str
    effects: Sequence[Effect]
    circumstances: Sequence[Mapping[str, Any]]
    where: str = ""
    by_row: Mapping[int, CellResult] = field(default_factory=dict)

    @property
    def is_search(self) -> bool:
        return self.declared.strategy is not None

    def again(self, more: str = "") -> str:
        """The command that runs the study again."""
        return command(self.declared, self.file, more) + self.where


def review(name: str, url: str, where: str = "") -> list[Finding]:
    """All findings on a study, the gravest first; none for a sound one.

    Args:
        where: what to add to each command, as ` --runs DIR`.

    Raises:
        UnknownName: there is no such study.
    """
    with Reader(url) as reader:
        stored = reader.study(name)
        results = reader.results(name)
        circumstances = reader.circumstances(name)
    declared = space.load(stored.document, stored.file, stored=True)
    found = effects(results, declared.margin, declared.looks)
    by_row = {cell.index: cell for cell in results.cells}
    study = Read(
        results=results,
        declared=declared,
        file=stored.file,
        effects=found,
        circumstances=circumstances,
        where=where,
        by_row=by_row,
    )
    return [finding for question in QUESTIONS for finding in question(study)]


def _unfinished(study: Read) -> Iterator[Finding]:
    counts: Counter[Status] = Counter()
    for cell in study.results.cells:
        counts.update(cell.states.values())
    for count, what in (
        (counts[Status.FAILED], "failed"),
        (counts[Status.PLANNED] + counts[Status.RUNNING], "are not trained yet"),
    ):
        if count:
            yield Finding(
                "unfinished",
                f"{count} trials {what}.",
                f"ablate resume {escape.shell(study.results.name)}{study.where}",
            )


def _chosen_on_test(study: Read) -> Iterator[Finding]:
    """A search, or early stopping, that is led by the test set."""
    if study.declared.data.validation:
        return
    by = ""
    if study.declared.strategy:
        by = f"strategy {study.declared.strategy.name}"
    elif study.declared.scheduler.name != "fifo":
        by = f"scheduler {study.declared.scheduler.name}"
    if by:
        yield Finding(
            "chosen on the test set",
            f"{by} chooses by {study.results.metric} on the test set, which is then"
            " reported: the best is too good. Hold images out: data: {name:"
            f" {study.declared.data.name}, validation: 0.1}}.",
            study.again(),
        )


def _baseline_differs(study: Read) -> Iterator[Finding]:
    """Variants that differ from row 0 in their training as well as in their network."""
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
            f"{_rows(confounded)}: trained otherwise than row 0, and no row has row"
            " 0's network trained that way: what the network does and what the training"
            " does cannot be told apart. Add that row.",
            study.again(),
        )


def _parts(cell: CellResult) -> tuple[Settings, Settings]:
    """The levels of a cell that say what its network is, and how it is trained."""
    network: dict[str, Level] = {}
    training: dict[str, Level] = {}
    for name, level in cell.levels.items():
        (training if name.startswith(TRAINING) else network)[name] = level
    return network, training


def _mixed(study: Read) -> Iterator[Finding]:
    """Trials of one comparison that ran on different hardware, versions or code."""
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
                f"one comparison on different {what}: {_group_texts(groups)}.",
                f"ablate reproduce {escape.shell(rarest[0]['trial'])}{study.where}",
            )
    changed = [one for one in study.circumstances if one["dirty"]]
    if changed:
        yield Finding(
            "changed checkout",
            f"{len(changed)} trials were trained from a checkout with uncommitted"
            " changes: that code cannot be recovered. Commit, and see whether they"
            " come out the same.",
            f"ablate reproduce {escape.shell(changed[0]['trial'])}{study.where}",
        )


def _group_texts(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    texts = []
    for kind, trials in groups.items():
        rows = sorted({trial["row"] for trial in trials})
        texts.append(f"{kind or 'unknown'}: {_rows(rows)}")
    return "; ".join(texts)


def _left_out(study: Read) -> Iterator[Finding]:
    """Seeds without a result, which no mean contains."""
    diverged = _seeds_of(study, Status.DIVERGED)
    if diverged:
        yield _left_out_finding(
            study,
            Status.DIVERGED,
            diverged,
            "Report their number beside the mean, or train with a lower recipe.lr or"
            " recipe.clip_grad",
        )
    # A scheduler is there to prune. Beside a mean, pruned seeds bias it.
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
            "Train them to their end with scheduler: fifo",
        )


def _seeds_of(study: Read, status: Status) -> dict[int, int]:
    """The number of seeds with this status, by row, of rows that have some."""
    counts = {
        cell.index: list(cell.states.values()).count(status)
        for cell in study.results.cells
    }
    return {row: count for row, count in counts.items() if count}


def _left_out_finding(
    study: Read, status: Status, counts: Mapping[int, int], remedy: str
) -> Finding:
    texts = [
        f"row {row}: {count} of {len(study.by_row[row].states)}"
        for row, count in counts.items()
    ]
    return Finding(
        f"{status} seeds",
        f"{', '.join(texts)} {status}, and the mean is of the others. {remedy}.",
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
            and effect.mean is not None
            and abs(effect.mean) >= study.declared.margin
        )
        if count and (count < FEW_SEEDS or unsure):
            yield _few_seeds_finding(study, effect, unsure)


def _best_of_many(study: Read) -> Iterator[Finding]:
    """The best of many single trainings was lucky in part."""
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
        f"row {best} was found best of many on one seed: part of that is luck. Train"
        " the best ones on more seeds.",
        study.again(),
    )


def _few_seeds_finding(study: Read, effect: Effect, unsure: bool) -> Finding:
    declared = study.declared
    count = len(effect.seeds)
    further = min(effect.further or 3, MOST_MORE)
    most = max(FEW_SEEDS + 3, len(declared.seeds) + further)
    # The option cannot add to seeds that are listed, nor to stopped trials.
    can_add = (
        declared.seeds == tuple(range(len(declared.seeds)))
        and declared.scheduler.name == "fifo"
    )
    hint = ""
    if not can_add:
        hint = f" Write seeds: {most} in {study.file}, with scheduler: fifo."
    option = ""
    if can_add and not study.is_search:
        option = f"--until-decided {most}"
    difference = f"{effect.mean:+.2f}{UNITS[study.results.metric]}"
    seeds = "seed" if count == 1 else "seeds"
    judgement = "is within noise" if unsure else "says little of noise"
    return Finding(
        "too few seeds",
        f"row {effect.row} ({change_text(effect.changed)}): {difference} on {count}"
        f" {seeds} {judgement}.{hint}",
        study.again(option),
    )


def _no_control(study: Read) -> Iterator[Finding]:
    """Variants that help and cost more, with nothing of the same cost beside."""
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
            f"{_rows(rows)}: better, and more expensive than row 0; a wider row 0 might do as"
            f" well. Add `control: iso-flops` to {study.file}.",
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
    """Factors that only ever came together with others."""
    if study.is_search or study.declared.design.name in CONFOUNDED:
        return
    baseline = study.declared.baseline
    if study.declared.design.name == "rows":
        baseline = study.results.cells[0].levels
    changes = [
        _without(cell.levels, baseline)
        for cell in study.results.cells
        if (cell.role != "control" and cell.states) or cell.same_as is not None
    ]
    lonely = [
        name for name in study.results.factors if _is_always_with_others(name, changes)
    ]
    if lonely:
        yield Finding(
            "never ablated",
            f"{', '.join(lonely)}: changed only together with other factors, never"
            " alone and never left out alone: what it does cannot be told. Add such"
            f" rows to {study.file}, or use design: grid, add-one-in or leave-one-out.",
            study.again(),
        )


def _without(levels: Settings, others: Settings) -> dict[str, Level]:
    """The levels that differ from the others."""
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
    """Networks that have learnt nothing differ by luck."""
    classes = study.declared.data.classes
    values = [value for cell in study.results.cells for value in cell.values.values()]
    if study.results.metric != "top1" or classes < 2 or not values:
        return
    chance = 100 / classes
    if max(values) < NEAR_CHANCE * chance:
        yield Finding(
            "near chance",
            f"the best training reaches {max(values):.1f} % of {classes} classes, where"
            f" guessing gives {chance:.1f} %: train longer, or look at the recipe"
            f" ({study.file}; `ablate plan` shows it).",
            study.again(),
        )


QUESTIONS: tuple[Callable[[Read], Iterator[Finding]], ...] = (
    _near_chance,
    _chosen_on_test,
    _baseline_differs,
    _mixed,
    _left_out,
    _too_few_seeds,
    _no_control,
    _never_alone,
    _unfinished,
)
