"""A space to a plan: cells to canonical architectures, costs, and trials; duplicates folded, impossible cells explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablate import data, factors
from ablate.errors import AblateError, Infeasible
from ablate.plan.designs import combinations
from ablate.plan.limits import violated, violations
from ablate.plan.start import find_start, prepared, refuse_strange
from ablate.plan.teacher import find_teacher
from ablate.records import (
    Architecture,
    Cell,
    Cost,
    Data,
    Plan,
    Recipe,
    Role,
    Settings,
    Space,
    Start,
    Teacher,
    Trial,
    weights_named,
)

Costs = Callable[[Architecture], Cost]

MOST_TRIALS = 1_000_000
"""Trials of a plan: each takes a kilobyte of memory before the first is trained."""


@dataclass(frozen=True)
class _Candidate:
    """A cell before it is compared with the others: what would be built and trained, or why it cannot be."""

    levels: Settings
    architecture: Architecture | None = None
    recipe: Recipe | None = None
    data: Data | None = None
    start: Start | None = None
    teacher: Teacher | None = None
    cost: Cost | None = None
    refusal: str = ""


def make_plan(space: Space, costs: Costs) -> Plan:
    """All cells of a space's design with what is to be trained for each.

    Args:
        costs: the cost of an architecture; raises Infeasible where it cannot be built.
    """
    made = Cells(space, costs)
    listed = combinations(space)
    if len(listed) * len(space.seeds) > MOST_TRIALS:
        raise AblateError(
            f"{space.name} has {len(listed):,} cells of {len(space.seeds):,} seeds: more than {MOST_TRIALS:,} trials; "
            "use fewer seeds, or design: {name: random, cells: N}"
        )
    for levels in listed:
        made.add(levels)
    _refuse_what_no_cell_reads(space, made.cells)
    if space.control:
        from ablate.plan.controls import add_controls

        add_controls(space, made)
    return Plan(space, tuple(made.cells))


class Cells:
    """Levels to cells, one after the other: built, costed, held against the limits, compared with those before.

    Attributes:
        cells: all cells so far.
        last: what was built for the last one, whether it may be trained or not.
    """

    def __init__(self, space: Space, costs: Costs) -> None:
        self._space, self._costs = space, costs
        self.baseline = _candidate(space, space.baseline, costs)
        self.cells: list[Cell] = []
        self._first: dict[tuple[str, str, str], int] = {}

    def violations(self, cell: Cell) -> dict[str, float]:
        """By how much a cell breaks each limit; nothing where that cannot be said."""
        try:
            return violations(self._space.limits, cell.cost, self.baseline.cost) if cell.cost is not None else {}
        except Infeasible:
            return {}

    def cost(self, levels: Settings) -> Cost:
        """What a cell of these levels would cost. Raises Infeasible where it cannot be built."""
        made = _candidate(self._space, levels, self._costs)
        if made.cost is None:
            raise Infeasible(made.refusal)
        return made.cost

    def add(self, levels: Settings, control_of: int | None = None) -> Cell:
        """The next cell; it may be the control of another one."""
        space, index = self._space, len(self.cells)
        made = self.baseline if levels == space.baseline else _candidate(space, levels, self._costs)
        role: Role = "reference" if index == 0 else "baseline" if levels == space.baseline else "variant"
        if control_of is not None:
            role = "control"
        unread = frozenset(name for name in levels if unread_reason(space, name, levels))
        cell = Cell(index, levels, role, unread, made.architecture, made.cost, note=made.refusal, control_of=control_of)
        if made.architecture is not None and made.recipe is not None and made.data is not None and made.cost is not None:
            try:
                broken = "; ".join(violated(space.limits, made.cost, self.baseline.cost))
            except Infeasible as error:
                broken = str(error)
            start = made.start.identity if made.start else ""
            key = (made.architecture.hash, repr(made.recipe.canonical()), start)
            if broken:
                cell = replace(cell, note=broken)
            elif key in self._first:
                other = self.cells[self._first[key]]
                cell = replace(cell, same_as=other.index, note=_why_same(space, levels, other.levels))
            else:
                self._first[key] = index
                trials = (
                    Trial(made.architecture, made.recipe, made.data, seed, made.start, made.teacher) for seed in space.seeds
                )
                cell = replace(cell, trials=tuple(trials))
        self.cells.append(cell)
        return cell


def _candidate(space: Space, levels: Settings, costs: Costs) -> _Candidate:
    from ablate.families import resolve

    settings = {**space.fixed, **levels}
    built = {name: level for name, level in settings.items() if not _is_outside(name)}
    backbone, found = str(settings.get("backbone", space.backbone)), space.data
    if "data.image_size" in settings:
        found = replace(found, image_size=int(settings["data.image_size"]))
    try:
        recipe = replace(space.recipe, **_changes(levels))
        if space.warmup_fits and "recipe.warmup_epochs" not in levels:
            recipe = recipe.fitted()
        if recipe.refusal():
            raise Infeasible(recipe.refusal())
        if not factors.reads_decay(built):
            recipe = replace(recipe, factor_decay="rule")
        data.refuse_recipe(found, recipe)
        share = recipe.batch_size // space.resources.processes
        if recipe.accumulate > share:
            raise Infeasible(f"recipe.accumulate = {recipe.accumulate} is more than the {share} images of a process")
        if factors.needs_patch_labels(built) and not recipe.cutmix:
            raise Infeasible("patch.mixing labels patches by CutMix; set recipe.cutmix above 0")
        if factors.needs_patch_labels(built) and recipe.mixup_mode != "batch":
            raise Infeasible("patch.mixing labels patches of a batch mixed alike; set recipe.mixup_mode to batch")
        if factors.mixes_patches(built) and not recipe.mixes:
            raise Infeasible("patch.variant = code needs mixed labels; set recipe.cutmix or recipe.mixup above 0")
        if factors.mixes_patches(built) and (recipe.mixup_off_epoch or recipe.mixup_prob < 1):
            raise Infeasible("patch.variant = code mixes every batch; leave recipe.mixup_off_epoch and recipe.mixup_prob out")
        if factors.mixes_patches(built) and space.resources.processes > 1:
            raise Infeasible("patch.variant = code mixes any two images of a batch; set resources.processes to 1")
        architecture = resolve(backbone, found.image_size, found.channels, found.classes, built)
        weights = weights_named(settings["pretrained"]) if "pretrained" in settings else space.pretrained
        start = find_start(weights, backbone)
        found = prepared(found, recipe, weights, backbone)
        cost = costs(architecture)
        refuse_strange(start, architecture)
        teacher = find_teacher(space.teacher, recipe, found)
        return _Candidate(levels, architecture, recipe, found, start, teacher, cost)
    except Infeasible as error:
        return _Candidate(levels, refusal=str(error))


def _is_outside(name: str) -> bool:
    """Whether a factor is none of the architecture's settings: the backbone itself, its weights, the data, the recipe."""
    return name in ("backbone", "pretrained") or name.startswith(("recipe.", "data."))


def _changes(levels: Settings) -> dict[str, Any]:
    """What a cell changes of the recipe, in the recipe's own types: YAML's `1` for a rate is the number 1.0."""
    default = Recipe()
    changes = {name.removeprefix("recipe."): level for name, level in levels.items() if name.startswith("recipe.")}
    return {name: float(level) if isinstance(getattr(default, name), float) else level for name, level in changes.items()}


def unread_reason(space: Space, name: str, levels: Settings) -> str:
    """Why a factor is not read in a cell, or nothing if it is."""
    if not _is_outside(name):
        return factors.unread_reason(name, {**space.fixed, **levels})
    when = replace(space.recipe, **_changes(levels)).unread().get(name.removeprefix("recipe."))
    return f"{name} is not read unless {when}" if when else ""


def _refuse_what_no_cell_reads(space: Space, cells: Sequence[Cell]) -> None:
    """A setting that is accepted and ignored everywhere would be a label without a meaning."""
    for name in (*space.fixed, *space.factors):
        if all(unread_reason(space, name, cell.levels) for cell in cells):
            reason = unread_reason(space, name, cells[0].levels)
            raise AblateError(f"{space.name}: no cell reads {name}: {reason}; leave it out")


def _why_same(space: Space, levels: Settings, others: Settings) -> str:
    """Why two cells train the same thing: the factors in which they differ are not read, or name one and the same model."""
    reasons = []
    for name in levels:
        here, there = unread_reason(space, name, levels), unread_reason(space, name, others)
        if levels[name] != others.get(name) and here and there:
            reasons.append(here)
    if levels == others:
        return "proposed again"
    return "; ".join(reasons) or "both build and train the same model"
