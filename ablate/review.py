"""Reads a study as a sceptical referee would: each finding says what is wrong, and what to type to mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate import escape, space
from ablate.records import CellResult, Settings, Space, Status, StudyResults
from ablate.report.effects import Effect, effects
from ablate.report.verdicts import Verdict
from ablate.report.wording import UNITS, change_text
from ablate.store.reader import Reader

NEAR_CHANCE = 2
"""Below this multiple of guessing, a network has learnt next to nothing."""
FEW_SEEDS = 3
"""Below this number of seeds a spread is a guess."""
MOST_MORE = 50
"""Further seeds that are proposed at once."""
COSTS_MORE = 1.01
"""A variant costs more from one per cent on."""
TRAINING = ("recipe.", "data.", "pretrained")
"""Beginnings of factors that say how a cell is trained, and not what its network is."""


@dataclass(frozen=True)
class Finding:
    """What a referee would object to, and the command that mends it."""

    name: str
    text: str
    command: str


def command(declared: Space, file: str, more: str = "") -> str:
    """What runs a study as it was run; without its option, one that was run until decided would be cut back."""
    until = f"--until-decided {declared.looks.most}" if declared.looks and "--until-decided" not in more else ""
    return " ".join(filter(None, ("ablate run", escape.shell(file), until, more)))


@dataclass(frozen=True)
class Read:
    """A study as it is read: results, declaration, file, verdicts, and on what its trials ran."""

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
        results, circumstances = reader.results(name), reader.circumstances(name)
    declared = space.load(stored.document, stored.file, stored=True)
    found = effects(results, declared.margin, declared.looks)
    by_row = {cell.index: cell for cell in results.cells}
    study = Read(results, declared, stored.file, found, circumstances, where, by_row)
    return [finding for question in QUESTIONS for finding in question(study)]


def _unfinished(study: Read) -> Iterator[Finding]:
    for states, what in (((Status.FAILED,), "failed"), ((Status.PLANNED, Status.RUNNING), "are not trained yet")):
        count = sum(state in states for cell in study.results.cells for state in cell.states.values())
        if count:
            yield Finding(
                "unfinished", f"{count} trials {what}.", f"ablate resume {escape.shell(study.results.name)}{study.where}"
            )


def _chosen_on_test(study: Read) -> Iterator[Finding]:
    """A search, or early stopping, that is led by the test set."""
    if study.declared.data.validation:
        return
    by = f"strategy {study.declared.strategy.name}" if study.declared.strategy else ""
    by = by or (f"scheduler {study.declared.scheduler.name}" if study.declared.scheduler.name != "fifo" else "")
    if by:
        yield Finding(
            "chosen on the test set",
            f"{by} chooses by {study.results.metric} on the test set, which is then reported: the best is too good. "
            f"Hold images out: data: {{name: {study.declared.data.name}, validation: 0.1}}.",
            study.again(),
        )


def _baseline_differs(study: Read) -> Iterator[Finding]:
    """Variants that differ from the first row in how they are trained as well as in what they are."""
    first, cells = study.results.cells[0], study.results.cells

    def training(levels: Settings) -> dict[str, Any]:
        return {name: level for name, level in levels.items() if name.startswith(TRAINING)}

    def network(levels: Settings) -> dict[str, Any]:
        return {name: level for name, level in levels.items() if not name.startswith(TRAINING)}

    both = [
        cell.index
        for cell in cells
        if training(cell.levels) != training(first.levels)
        and network(cell.levels) != network(first.levels)
        and not any(training(c.levels) == training(cell.levels) and network(c.levels) == network(first.levels) for c in cells)
    ]
    if both and not study.is_search and study.declared.design.name not in ("fractional", "plackett-burman", "random"):
        yield Finding(
            "baseline trained differently",
            f"{_rows(both)}: trained otherwise than row 0, and no row has row 0's network trained that way: what the "
            f"network does "
            "and what the training does cannot be told apart. Add that row.",
            study.again(),
        )


def _mixed(study: Read) -> Iterator[Finding]:
    """Trials of one comparison that ran on different hardware, versions or code."""
    kinds: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "hardware": lambda one: one["gpus"] if one["device"].startswith("cuda") else one["cpu"],
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
            told = "; ".join(
                f"{kind or 'unknown'}: {_rows(sorted({one['row'] for one in ones}))}" for kind, ones in groups.items()
            )
            rarest = min(groups.values(), key=len)
            yield Finding(
                f"mixed {what}",
                f"one comparison on different {what}: {told}.",
                f"ablate reproduce {escape.shell(rarest[0]['trial'])}{study.where}",
            )
    changed = [one for one in study.circumstances if one["dirty"]]
    if changed:
        yield Finding(
            "changed checkout",
            f"{len(changed)} trials were trained from a checkout with uncommitted changes: nobody can get that code back. "
            "Commit, and see whether they come out the same.",
            f"ablate reproduce {escape.shell(changed[0]['trial'])}{study.where}",
        )


def _left_out(study: Read) -> Iterator[Finding]:
    """Seeds that came to nothing and so are in no mean."""
    for state in (Status.DIVERGED, Status.PRUNED):
        rows = {c.index: sum(s == state for s in c.states.values()) for c in study.results.cells if state in c.states.values()}
        # Pruned trials are what a scheduler is for, unless a mean stands beside them.
        rows = {row: n for row, n in rows.items() if state == Status.DIVERGED or study.by_row[row].values}
        if rows:
            told = ", ".join(f"row {row}: {n} of {len(study.by_row[row].states)}" for row, n in rows.items())
            remedy = (
                "Report their number beside the mean, or train with a lower recipe.lr or recipe.clip_grad"
                if state == Status.DIVERGED
                else "Train them to their end with scheduler: fifo"
            )
            yield Finding(f"{state} seeds", f"{told} {state}, and the mean is of the others. {remedy}.", study.again())


def _too_few_seeds(study: Read) -> Iterator[Finding]:
    if study.is_search and not any(len(cell.values) > 1 for cell in study.results.cells):
        best = max(
            (cell for cell in study.results.cells if cell.values),
            key=lambda cell: (1 if study.results.direction == "max" else -1) * next(iter(cell.values.values())),
            default=None,
        )
        if best is not None:
            text = (
                f"row {best.index} was found best of many on one seed: part of that is luck. Train the best ones on more seeds."
            )
            yield Finding("too few seeds", text, study.again())
        return
    for effect in study.effects:
        count = len(effect.seeds)
        unsure = effect.verdict is Verdict.INCONCLUSIVE and effect.mean is not None and abs(effect.mean) >= study.declared.margin
        if not count or (count >= FEW_SEEDS and not unsure):
            continue
        most = max(FEW_SEEDS + 3, len(study.declared.seeds) + min(effect.further or 3, MOST_MORE))
        # Seeds that are listed, and stopped trials, cannot be added to by the option.
        plain = study.declared.seeds == tuple(range(len(study.declared.seeds))) and study.declared.scheduler.name == "fifo"
        advice = "" if plain else f" Write seeds: {most} in {study.file}, with scheduler: fifo."
        difference = f"{effect.mean:+.2f}{UNITS[study.results.metric]}"
        yield Finding(
            "too few seeds",
            f"row {effect.row} ({change_text(effect.changed)}): {difference} on {count} seed{'s' if count > 1 else ''} "
            f"{'is within noise' if unsure else 'says little of noise'}.{advice}",
            study.again(f"--until-decided {most}" if plain and not study.is_search else ""),
        )


def _no_control(study: Read) -> Iterator[Finding]:
    """Variants that help and cost more, with nothing of the same cost beside."""
    if study.declared.control or study.is_search:
        return

    def more(effect: Effect) -> bool:
        pairs = [(effect.cost, effect.reference_cost)] if effect.cost and effect.reference_cost else []
        return any(a.flops > COSTS_MORE * b.flops or a.params > COSTS_MORE * b.params for a, b in pairs)

    rows = [effect.row for effect in study.effects if effect.verdict is Verdict.HELPS and more(effect)]
    if rows:
        yield Finding(
            "no iso-cost control",
            f"{_rows(rows)}: better, and dearer than row 0; a wider row 0 might do as well. Add `control: iso-flops` to "
            f"{study.file}.",
            study.again(),
        )


def _never_alone(study: Read) -> Iterator[Finding]:
    """Factors that only ever came together with others."""
    if study.is_search or study.declared.design.name in ("fractional", "plackett-burman", "random"):
        return
    cells = [cell for cell in study.results.cells if (cell.role != "control" and cell.states) or cell.same_as is not None]
    baseline = study.results.cells[0].levels if study.declared.design.name == "rows" else study.declared.baseline
    changes = [{n: v for n, v in cell.levels.items() if v != baseline.get(n)} for cell in cells]
    lonely = []
    for name in study.results.factors:
        together = [change for change in changes if name in change and len(change) > 1]
        alone = any(set(change) == {name} for change in changes)
        left = any({n: v for n, v in change.items() if n != name} in changes for change in together)
        if together and not alone and not left:
            lonely.append(name)
    if lonely:
        yield Finding(
            "never ablated",
            f"{', '.join(lonely)}: changed only together with other factors, never alone and never left out alone: what it does "
            f"cannot be told. Add such rows to {study.file}, or use design: grid, add-one-in or leave-one-out.",
            study.again(),
        )


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
    return f"row{'s' if len(rows) > 1 else ''} {shown}"


def _near_chance(study: Read) -> Iterator[Finding]:
    """Networks that have learnt nothing differ by luck."""
    classes = study.declared.data.classes
    values = [value for cell in study.results.cells for value in cell.values.values()]
    if study.results.metric == "top1" and classes > 1 and values and max(values) < NEAR_CHANCE * 100 / classes:
        text = f"the best training reaches {max(values):.1f} % of {classes} classes, where guessing gives {100 / classes:.1f} %: "
        yield Finding(
            "near chance", f"{text}train longer, or look at the recipe ({study.file}; `ablate plan` shows it).", study.again()
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
