"""Levels to cells: what would be built and trained, what it costs, and why not.

Cells that train the same are folded, and impossible ones explained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ablate import data, factors, families, heads
from ablate.errors import AblateError, Infeasible, UncountedOperator
from ablate.factors.factor import declared_level
from ablate.learning.named_parts import NAMING, named_part
from ablate.learning.recipe_check import recipe_problem
from ablate.own import registry
from ablate.own.commits import COMMIT
from ablate.parts import Trainer, trainer_named
from ablate.plan.limits import violated, violations
from ablate.plan.start import find_start, prepared, refuse_strange
from ablate.plan.teacher import find_teacher
from ablate.records import (
    NO_AUGMENTATION,
    PUBLISHED_WEIGHTS,
    VARIED,
    Architecture,
    AtSetting,
    Cell,
    Cost,
    Data,
    InitialWeights,
    Level,
    Recipe,
    Role,
    Settings,
    Source,
    Space,
    Teacher,
    Trial,
    level_text,
    weights_named,
)

Costs = Callable[[Architecture], Cost]


@dataclass(frozen=True)
class _Built:
    """What would be built and trained for a cell."""

    architecture: Architecture
    recipe: Recipe
    data: Data
    start: InitialWeights | None
    teacher: Teacher | None
    cost: Cost
    # Identity of the user's parts that train it.
    code: Mapping[str, str]
    # Fields of the recipe that the user's trainer reads.
    reads: tuple[str, ...] = ()
    # What a seed decides.
    vary: tuple[Source, ...] = VARIED

    @property
    def key(self) -> tuple[str, str, str]:
        """A key that is equal for cells that train the same model alike."""
        start = self.start.identity if self.start else ""
        if self.architecture.trainer:
            recipe = self.recipe.verbatim(self.reads)
        else:
            recipe = self.recipe.canonical()
        return self.architecture.hash, repr(recipe), start

    def trials(self, seeds: Sequence[int]) -> tuple[Trial, ...]:
        """One trial per seed."""
        return tuple(
            Trial(
                architecture=self.architecture,
                recipe=self.recipe,
                data=self.data.of_seed(seed) if "split" in self.vary else self.data,
                seed=seed,
                start=self.start,
                teacher=self.teacher,
                code=self.code,
                reads=self.reads,
                vary=self.vary,
            )
            for seed in seeds
        )


@dataclass(frozen=True)
class _Candidate:
    """A cell before it is compared with others: built, or refused with a reason."""

    built: _Built | None = None
    refusal: str = ""

    @property
    def cost(self) -> Cost | None:
        return self.built.cost if self.built else None


class Cells:
    """Turns levels into cells, one after another.

    Each cell is built, its cost is counted and checked against the limits, and it is
    compared with the cells before.

    Attributes:
        baseline: the baseline as it would be built.
        cells: all cells so far.
    """

    def __init__(self, space: Space, costs: Costs) -> None:
        self._space, self._costs = space, costs
        self.baseline = self._made(space.factors.baseline)
        self.cells: list[Cell] = []
        self._first: dict[tuple[tuple[str, str, str], ...], int] = {}

    def violations(self, cell: Cell) -> dict[str, float]:
        """Returns by how much a cell breaks each limit; empty if that is unknown."""
        try:
            if cell.cost is not None:
                return violations(
                    self._space.limits,
                    cell.cost,
                    self.baseline.cost,
                    self._settings(cell.levels),
                )
            return {}
        except Infeasible:
            return {}

    def cost(self, levels: Settings) -> Cost:
        """Returns the cost of a cell with these levels.

        Raises Infeasible if it cannot be built.
        """
        made = self._candidate(levels)
        if made.cost is None:
            raise Infeasible(made.refusal)
        return made.cost

    def add(self, levels: Settings, control_of: int | None = None) -> Cell:
        """Adds the next cell, which may be the control of another cell."""
        made = self._candidate(levels)
        cell = Cell(
            index=len(self.cells),
            levels=levels,
            role=self._role(levels, control_of),
            unread=frozenset(name for name in levels if self._is_unread(name, levels)),
            architecture=made.built.architecture if made.built else None,
            cost=made.cost,
            note=made.refusal,
            control_of=control_of,
        )
        if made.built is not None:
            cell = self._compared(cell, made.built)
        self.cells.append(cell)
        return cell

    def _candidate(self, levels: Settings) -> _Candidate:
        if levels == self._space.factors.baseline:
            return self.baseline
        return self._made(levels)

    def _made(self, levels: Settings) -> _Candidate:
        """Returns what would be built and trained; at the first setting, if rows choose."""
        return _candidate(self._space, points_of(self._space, levels)[0], self._costs)

    def _is_unread(self, name: str, levels: Settings) -> bool:
        """Whether a factor is read at none of the settings of a cell."""
        return all(
            unread_reason(self._space, name, point)
            for point in points_of(self._space, levels)
        )

    def _role(self, levels: Settings, control_of: int | None) -> Role:
        if control_of is not None:
            return "control"
        if not self.cells:
            return "reference"
        if levels == self._space.factors.baseline:
            return "baseline"
        return "variant"

    def _compared(self, cell: Cell, built: _Built) -> Cell:
        """Returns the cell with its trials, unless it breaks a limit or is folded."""
        broken = self._broken_limits(built.cost, cell.levels)
        if broken and cell.role == "reference":
            raise AblateError(
                f"row 0 is not allowed, so no row could be compared with it: {broken};"
                " change the limit or the baseline"
            )
        if broken:
            return replace(cell, note=broken)
        # Cells are compared by what they train, not by their levels: two settings may
        # resolve to the same model.
        built_at = self._at_settings(cell, built)
        key = tuple(at_setting.key for at_setting in built_at)
        first = self._first.get(key)
        if first is not None:
            why = _why_same(self._space, cell.levels, self.cells[first].levels)
            return replace(cell, same_as=first, note=why)
        self._first[key] = cell.index
        seeds = self._space.seeds
        numbers = seeds.numbers if self.cells else seeds.of_row_0
        if self._space.tune is None:
            return replace(cell, trials=built.trials(numbers))
        trials = self._base(cell, built).trials(numbers)
        choosing = dict.fromkeys(
            number
            for seed in numbers
            for number in self._space.tune.seeds_that_choose(seed)
        )
        tried = built_at
        if self._space.tune.at:
            tried = self._at_settings(cell, built, self._space.tune.at)
        return replace(
            cell,
            architecture=trials[0].architecture,
            trials=trials,
            base=trials[0],
            by_setting=tuple(
                at_setting.trials(numbers[:1])[0] for at_setting in built_at
            ),
            at_settings=tuple(
                AtSetting(
                    stage="tuning", setting=number, trial=trial, cost=at_setting.cost
                )
                for number, at_setting in enumerate(tried)
                for trial in at_setting.trials(tuple(choosing))
            ),
        )

    def _base(self, cell: Cell, built: _Built) -> _Built:
        """Returns the training that identifies a row: at the recipe of the space.

        At the first setting, if it cannot be trained at that recipe.
        """
        try:
            return _build(self._space, cell.levels, _same_cost(built.cost))
        except Infeasible:
            return built

    def _at_settings(
        self, cell: Cell, built: _Built, size: Settings | None = None
    ) -> list[_Built]:
        """Returns what would be trained at each setting of a cell, the first one first.

        Args:
            size: another size than that of the space, as axis and size.

        Raises:
            AblateError: a setting cannot be trained in the cell, or changes its cost.
        """
        tune = self._space.tune
        if tune is None:
            return [built]
        costs = self._costs
        is_own = bool(self._space.network.trainer)
        built_at: list[_Built] = []
        for point in tune.points:
            levels = {**cell.levels, **point, **(size or {})}
            place = f"row {cell.index} at {_text({**point, **(size or {})})}"
            try:
                at_setting = _build(self._space, levels, costs)
            except Infeasible as error:
                raise AblateError(
                    f"tune: every row tries every setting, but {place} cannot be"
                    f" trained: {error}; change the levels of"
                    f" {', '.join(tune.names)} under tune"
                ) from None
            first = built_at[0] if built_at else at_setting
            if at_setting.cost != first.cost:
                raise AblateError(
                    f"tune: {place} is another network, which costs"
                    f" {_other_cost(at_setting.cost, first.cost)}; settings that each row"
                    " chooses must not change costs: name this hyperparameter under"
                    " factors"
                )
            built_at.append(at_setting)
            if not is_own and all(map(_is_free, tune.names)):
                # To count each setting again would take most of the time of a plan.
                costs = _same_cost(first.cost)
        return built_at

    def _settings(self, levels: Settings) -> Settings:
        return {**self._space.factors.fixed, **levels}

    def _broken_limits(self, cost: Cost, levels: Settings) -> str:
        """Returns the limits that a cell breaks, in words; empty if it keeps all."""
        limits, settings = self._space.limits, self._settings(levels)
        try:
            return "; ".join(violated(limits, cost, self.baseline.cost, settings))
        except Infeasible as error:
            return str(error)


def _is_free(name: str) -> bool:
    """Whether no level of a factor changes the cost of a network."""
    # Networks are counted in evaluation mode, in which nothing is dropped.
    return name.startswith(("recipe.", "drop."))


def _same_cost(cost: Cost) -> Costs:
    """Returns what counts the cost of networks that all have the same one."""
    return lambda architecture: cost


def _other_cost(cost: Cost, other: Cost) -> str:
    """Returns the first number in which two costs differ, in words."""
    name = next(
        field.name
        for field in fields(Cost)
        if getattr(cost, field.name) != getattr(other, field.name)
    )
    return f"{getattr(cost, name):,} {name} instead of {getattr(other, name):,}"


def points_of(space: Space, levels: Settings) -> list[Settings]:
    """Returns the levels of a cell at each setting; the levels alone without settings."""
    if space.tune is None:
        return [levels]
    return [{**levels, **point} for point in space.tune.points]


def _text(levels: Settings) -> str:
    return ", ".join(f"{name} = {level_text(level)}" for name, level in levels.items())


def _candidate(space: Space, levels: Settings, costs: Costs) -> _Candidate:
    try:
        return _Candidate(_build(space, levels, costs))
    except Infeasible as error:
        return _Candidate(refusal=str(error))


def why_infeasible(space: Space, levels: Settings, costs: Costs) -> Infeasible | None:
    """The error, with its cause, for which a row is not trained; None if it can be."""
    try:
        _build(space, levels, costs)
    except Infeasible as error:
        return error
    return None


def _build(space: Space, levels: Settings, costs: Costs) -> _Built:
    """Returns what would be built and trained at these levels.

    Raises:
        Infeasible: the levels cannot be built or trained together.
    """
    excluded = space.factors.excluded_by(levels)
    if excluded:
        raise Infeasible(f"excluded: {excluded}")
    if space.network.trainer:
        return _build_own(space, levels, costs)
    settings = {**space.factors.fixed, **levels}
    backbone = str(settings.get("backbone", space.network.backbone))
    architectural = _architectural(settings, backbone)
    images = space.data
    if "data.image_size" in settings:
        images = replace(images, image_size=int(settings["data.image_size"]))
    recipe = _recipe(
        space,
        levels,
        images.images,
        reads_decay=factors.reads_decay(architectural, backbone),
    )
    data.refuse_recipe(images, recipe)
    _refuse_training(recipe, architectural, backbone, space.resources.processes)
    _refuse_augmentation(recipe, images, space.resources.processes)
    if space.network.head:
        _refuse_small_batches(space.network.head, recipe, images)
    architecture = families.resolve(
        backbone,
        images.image_size,
        images.channels,
        images.classes,
        architectural,
        head=space.network.head,
        image_width=images.image_width,
    )
    if recipe.checkpointing:
        from ablate.learning.speed import refuse_checkpointing

        refuse_checkpointing(architecture)
    weights = space.network.pretrained
    if "pretrained" in settings:
        weights = weights_named(settings["pretrained"])
    if backbone != architecture.backbone and weights != PUBLISHED_WEIGHTS:
        raise Infeasible(
            f"{backbone} names weights of timm, but pretrained is not true; write"
            f" pretrained: true, or backbone: {architecture.backbone}"
        )
    start = find_start(weights, backbone)
    images = prepared(images, recipe, weights, backbone)
    try:
        cost = costs(architecture)
    except UncountedOperator as error:
        if families.find(backbone).blocks_known:
            raise
        raise Infeasible(f"{backbone} cannot be counted: {error}") from None
    refuse_strange(start, architecture)
    return _Built(
        architecture=architecture,
        recipe=recipe,
        data=images,
        start=start,
        teacher=find_teacher(space.network.teacher, recipe, images),
        cost=cost,
        code=_code(space, recipe),
        vary=space.seeds.vary,
    )


def _build_own(space: Space, levels: Settings, costs: Costs) -> _Built:
    """Returns what the user's own training would build and train at these levels."""
    trainer = trainer_named(space.network.trainer)
    settings = {**trainer.defaults(), **space.factors.fixed, **levels}
    if space.tune is not None:
        # Without a default, a row is known by the first of the levels that it tries.
        first = {name: listed[0] for name, listed in space.tune.levels.items()}
        settings = {**first, **settings}
    architecture = Architecture(
        backbone=space.network.backbone,
        image_size=0,
        channels=0,
        classes=0,
        # All levels: a default that changes later must not give old results to new
        # trials.
        settings={
            name: _own_level(trainer, name, settings[name])
            for name in sorted(settings)
            if not _is_outside(name)
        },
        code=_own_code(trainer, settings),
    )
    return _Built(
        architecture=architecture,
        recipe=replace(space.recipe, **_changes(levels)),
        data=space.data,
        start=None,
        teacher=None,
        cost=costs(architecture),
        code={},
        reads=trainer.recipe,
    )


def _own_level(trainer: Trainer, name: str, level: Level) -> Level:
    """Returns a level as it identifies a trial: of a commit, its files."""
    if name == COMMIT and trainer.takes_commits():
        return trainer.last_tree(str(level)).identity
    return declared_level(trainer.factors[name], level)


def _own_code(trainer: Trainer, settings: Settings) -> dict[str, str]:
    """Returns what the files of a trainer add to the identity of a trial.

    In a commit, its command runs with the files of the commit.
    """
    if COMMIT in settings and trainer.takes_commits():
        return registry.identity_of_declaration(trainer)
    return registry.identity("trainer", trainer)


def _code(space: Space, recipe: Recipe) -> dict[str, str]:
    """Returns what the user's loss, metric, ... add to the identity of a trial."""
    code: dict[str, str] = {}
    for field in NAMING:
        part = named_part(field, getattr(recipe, field))
        if part is not None:
            code |= registry.identity(field, part)
    metric = registry.of_kind("metric").get(space.criterion.measured)
    if metric is not None:
        code |= registry.identity("metric", metric)
        if space.resources.processes > 1:
            raise Infeasible(
                f"the metric {space.criterion.measured} needs all logits in one process; set"
                " resources.processes to 1"
            )
    return code


def _recipe(
    space: Space, levels: Settings, images: int, *, reads_decay: bool
) -> Recipe:
    """Returns the recipe of a cell.

    Args:
        images: training images of an epoch; 0 if unknown.
    """
    recipe = replace(space.recipe, **_changes(levels))
    if (recipe.steps or recipe.images) and not images:
        raise Infeasible(
            "the number of training images is not known; write recipe.epochs instead of"
            f" recipe.{'steps' if recipe.steps else 'images'}"
        )
    recipe = recipe.in_epochs(images)
    over = space.criterion.compared.over
    if recipe.epochs < over:
        raise Infeasible(
            f"a mean over the last {over} epochs (metric) needs as many, and a trial has"
            f" {recipe.epochs}; write over: {recipe.epochs} at most, or a longer training"
        )
    if space.warmup_fits and "recipe.warmup_epochs" not in levels:
        recipe = recipe.fitted()
    if recipe.refusal():
        raise Infeasible(recipe.refusal())
    if not space.network.trainer and (problem := recipe_problem(recipe)):
        raise Infeasible(problem)
    if not reads_decay:
        recipe = replace(recipe, factor_decay="rule")
    return recipe


def _refuse_training(
    recipe: Recipe, architectural: Settings, backbone: str, processes: int
) -> None:
    """Raises Infeasible if the recipe cannot train a network with these settings."""
    share = recipe.batch_size // processes
    labels_patches = factors.needs_patch_labels(architectural, backbone)
    mixes_patches = factors.mixes_patches(architectural, backbone)
    mixes_some_batches = bool(recipe.mixup_off_epoch) or recipe.mixup_prob < 1
    refusals = (
        (
            bool(recipe.lr_width) and not families.find(backbone).blocks_known,
            "recipe.lr_width scales the learning rate in blocks, and ablate does not know"
            f" those of {backbone}; leave it out",
        ),
        (
            recipe.accumulate > share,
            f"recipe.accumulate = {recipe.accumulate} is more than the {share} images"
            f" of a process per batch; set it to {share} or less",
        ),
        (
            labels_patches and not recipe.cutmix,
            "patch.mixing labels patches by CutMix; set recipe.cutmix above 0",
        ),
        (
            labels_patches and recipe.mixup_mode != "batch",
            "patch.mixing needs one mix for all images of a batch; set"
            " recipe.mixup_mode to batch",
        ),
        (
            mixes_patches and not recipe.mixes,
            "patch.variant = code needs mixed labels; set recipe.cutmix or recipe.mixup"
            " above 0",
        ),
        (
            mixes_patches and mixes_some_batches,
            "patch.variant = code mixes every batch; leave recipe.mixup_off_epoch and"
            " recipe.mixup_prob out",
        ),
        (
            mixes_patches and processes > 1,
            "patch.variant = code mixes any two images of a batch; set"
            " resources.processes to 1",
        ),
    )
    for is_refused, reason in refusals:
        if is_refused:
            raise Infeasible(reason)


def _refuse_augmentation(recipe: Recipe, images: Data, processes: int) -> None:
    """Raises Infeasible if the user's augmentation cannot change these images."""
    if recipe.augmentation == NO_AUGMENTATION:
        return
    from ablate.learning.augmentation import refuse_augmentation

    refuse_augmentation(recipe, images, processes)


def _refuse_small_batches(head: str, recipe: Recipe, images: Data) -> None:
    """Raises Infeasible if a head cannot train on the smallest part of a batch."""
    batch = min(recipe.batch_size, images.images or recipe.batch_size)
    fewest = heads.find(head).fewest
    if batch // recipe.accumulate < fewest:
        raise Infeasible(
            f"head {head} needs {fewest} images at once; raise recipe.batch_size, or"
            " lower recipe.accumulate"
        )


def _architectural(settings: Settings, backbone: str) -> dict[str, Level]:
    """Returns the settings of the architecture.

    A switch of another backbone is left out.

    Raises Infeasible if a level is one of another backbone only.
    """
    parameters = factors.parameters(backbone)
    architectural = {
        name: level
        for name, level in settings.items()
        if not _is_outside(name) and name in parameters
    }
    for name, level in architectural.items():
        _, parameter = parameters[name]
        if not parameter.allowed.accepts(level):
            reason = factors.explain_refusal(name, parameter, level)
            raise Infeasible(f"on {backbone}, {reason}")
        architectural[name] = declared_level(parameter.allowed, level)
    return architectural


def _is_outside(name: str) -> bool:
    """Whether a factor is not a setting of the architecture.

    Such factors are the backbone itself, its weights, the data and the recipe.
    """
    return name in ("backbone", "pretrained") or name.startswith(("recipe.", "data."))


def _changes(levels: Settings) -> dict[str, Any]:
    """Returns what a cell changes in the recipe, in the types of the recipe.

    YAML's `1` for a rate becomes the number 1.0.
    """
    default = Recipe()
    changes: dict[str, Any] = {}
    for factor, level in levels.items():
        section, _, name = factor.partition(".")
        if section != "recipe":
            continue
        is_rate = isinstance(getattr(default, name), float)
        changes[name] = float(level) if is_rate else level
    return changes


def unread_reason(space: Space, name: str, levels: Settings) -> str:
    """Returns why a factor is not read in a cell; empty if it is read."""
    if space.network.trainer:
        # What a training of one's own reads is not known.
        return ""
    if not _is_outside(name):
        settings = {**space.factors.fixed, **levels}
        backbone = str(settings.get("backbone", space.network.backbone))
        if name not in factors.parameters(backbone):
            return f"{backbone} does not have {name}"
        return factors.unread_reason(name, settings, backbone)
    recipe = replace(space.recipe, **_changes(levels))
    when = recipe.unread().get(name.removeprefix("recipe."))
    if when:
        return f"{name} is not read unless {when}"
    return ""


def _why_same(space: Space, levels: Settings, others: Settings) -> str:
    """Returns why two cells train the same thing.

    The factors in which they differ are not read, or the levels describe the same
    model.
    """
    reasons = []
    at, at_others = points_of(space, levels)[0], points_of(space, others)[0]
    for name in levels:
        here = unread_reason(space, name, at)
        there = unread_reason(space, name, at_others)
        if levels[name] != others.get(name) and here and there:
            reasons.append(here)
    if levels == others:
        return "proposed again"
    return "; ".join(reasons) or "both build and train the same model"
