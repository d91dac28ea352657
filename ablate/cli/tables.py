"""The tables that the verbs print."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate import tasks
from ablate.learning.named_parts import decoupled
from ablate.records import (
    LENGTHS,
    Cell,
    Data,
    Level,
    Plan,
    Recipe,
    Space,
    Status,
    level_text,
)
from ablate.report.commits import difference_lines
from ablate.report.folding import folding_notes
from ablate.report.summary import (
    COST_HEADINGS,
    RoleWord,
    level_columns,
    shown_levels,
)
from ablate.report.table import Column, Table, plain, tabulate
from ablate.report.units import Unit, cost_text, cost_units, size_text

if TYPE_CHECKING:
    from ablate.factors.factor import Factor, Parameter
    from ablate.families.family import Family
    from ablate.pipeline import Preview
    from ablate.store.studies import StudyStatus
    from ablate.trained.disk import Place

# More weight decay than this is meant for an optimizer that decouples it.
SMALL_DECAY = 0.005


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a plan, and how many of its trials are left to train."""

    cell: Cell
    left: int
    known: int
    # The size of its study, if there are several.
    size: Level | None = None

    @classmethod
    def all_of(cls, preview: Preview) -> list[PlannedCell]:
        """Returns all cells of a plan."""
        waiting = {trial.hash for trial in preview.to_train}
        across = preview.plan.space.across
        planned = []
        for cell in preview.plan.cells:
            trials = {trial.hash for trial in cell.all_trials} - preview.shared
            left = len(waiting & trials)
            planned.append(
                cls(
                    cell=cell,
                    left=left,
                    known=len(trials) - left,
                    size=across.size if across else None,
                )
            )
        return planned


def plan_table(*previews: Preview) -> Table:
    """Every cell of a plan, at every size: levels, cost, outcome."""
    plan = previews[0].plan
    by_size = [PlannedCell.all_of(preview) for preview in previews]
    planned = list(itertools.chain.from_iterable(by_size))
    # Folded cells are in the data only; a note below the table lists them.
    shown = [each for each in planned if each.cell.same_as is None]
    return tabulate(
        plan_columns(plan, planned, has_notes=any(each.cell.note for each in shown)),
        planned,
        shown=shown,
        title=plan.space.claim.question,
        notes=_plan_notes(plan),
        groups=frozenset(
            number
            for number, (each, before) in enumerate(itertools.pairwise(shown), start=1)
            if each.size != before.size
        ),
    )


def plan_columns(
    plan: Plan, planned: Sequence[PlannedCell], *, has_notes: bool
) -> list[Column[PlannedCell]]:
    """Returns the columns of the table of a plan.

    Args:
        planned: its cells, at all sizes.
        has_notes: whether the screen shows the notes of cells.
    """
    units = cost_units((each.cell.cost for each in planned), COST_HEADINGS)
    across = plan.space.across
    sizes: list[Column[PlannedCell]] = []
    if across is not None:
        sizes = [
            Column(
                "size",
                lambda each: each.size,
                heading=across.label,
                text=lambda each: level_text(each.size),
                right=True,
                about="the size of the study, with across",
            )
        ]

    def level_column(number: int, name: str, names: list[str]) -> Column[PlannedCell]:
        return Column(
            heading=name, text=lambda each: level_texts(each.cell, names)[number]
        )

    def cost_column(name: str, unit: Unit) -> Column[PlannedCell]:
        return Column(
            heading=f"{COST_HEADINGS[name]} ({unit.letter})",
            text=lambda each: cost_text(each.cell.cost, name, unit),
            right=True,
        )

    names = list(plan.space.factors.levels)
    return [
        *sizes,
        Column(
            "row", lambda each: each.cell.index, heading="row", right=True, kind=int
        ),
        Column("role", lambda each: each.cell.role, kind=RoleWord),
        Column(fields=lambda each: level_columns(shown_levels(each.cell))),
        Column(fields=lambda each: asdict(each.cell.cost) if each.cell.cost else {}),
        *(level_column(*pair, names) for pair in enumerate(names)),
        *(cost_column(*pair) for pair in units.items()),
        Column(
            "outcome",
            _outcome,
            heading="outcome",
            kind=str,
            about="train, known, folded (same as another row), infeasible",
        ),
        Column("same_as", lambda each: each.cell.same_as, kind=int | None),
        Column(
            "to_train",
            lambda each: each.left,
            heading="to train",
            text=lambda each: str(each.left) if each.cell.feasible else "",
            right=True,
            kind=int,
            about="trials without a result",
        ),
        Column(
            "known",
            lambda each: each.known,
            heading="known",
            text=lambda each: str(each.known) if each.cell.feasible else "",
            right=True,
            kind=int,
            about="trials with a result",
        ),
        Column(
            "note",
            lambda each: each.cell.note,
            heading="why" if has_notes else "",
            kind=str,
        ),
    ]


def _outcome(planned: PlannedCell) -> str:
    """What a run does with a cell."""
    if planned.cell.same_as is not None:
        return "folded"
    if not planned.cell.feasible:
        return "infeasible"
    # Without a trial of its own, it waits for the setting that the smallest size chooses.
    if planned.left or not planned.known:
        return "train"
    return "known"


def _plan_notes(plan: Plan) -> list[str]:
    """Which cells are folded, which effects a fraction of the grid cannot separate, and
    how every cell is trained.
    """
    from ablate.plan.designs import aliases

    notes = [*folding_notes(plan.cells), *_control_notes(plan)]
    if plan.space.strategy is None and plan.space.design.name in (
        "fractional",
        "plackett-burman",
    ):
        notes += [f"Not separable: {line}." for line in aliases(plan.space)]
    if plan.space.network.trainer:
        return [*notes, *_commit_lines(plan.space), _own_recipe(plan.space)]
    unread = tasks.find(plan.space.network.task).unread
    varied = [
        name.removeprefix("recipe.")
        for name in plan.space.factors.levels
        if name.startswith("recipe.")
    ]
    tuned = [] if plan.space.tune is None else list(plan.space.tune.names)
    fields = [
        f"{name} {_field_text(plan, name, level)}"
        for name, level in _shown_recipe(plan).summary().items()
        if name not in {*unread, *varied} and f"recipe.{name}" not in tuned
    ]
    chosen = [f"{name.removeprefix('recipe.')} is chosen by each row" for name in tuned]
    recipe = ", ".join([*fields, *(f"{name} varies" for name in varied), *chosen])
    decay = plan.space.recipe.weight_decay
    other = decoupled(plan.space.recipe.optimizer) if decay > SMALL_DECAY else ""
    if other:
        notes.append(
            f"{plan.space.recipe.optimizer} adds weight_decay {decay:g} to the gradient,"
            f" and may learn nothing; {other} decouples them."
        )
    warmup = plan.space.recipe.warmup_epochs
    cut = plan.space.warmup_fits and any(
        int(epochs) <= warmup
        for epochs in plan.space.factors.levels.get("recipe.epochs", ())
    )
    if cut:
        notes += [
            "The warm-up of a cell is at least one epoch shorter than its training."
        ]
    notes += _length_notes(plan)
    return [*notes, f"Recipe: {recipe}; all other fields are off or at their defaults."]


def _has_other_length(space: Space) -> bool:
    """Whether the recipe gives the length of a training in steps or images."""
    given = {f"recipe.{name}" for name in LENGTHS[1:]} & set(space.factors.levels)
    return bool(given or space.recipe.steps or space.recipe.images)


def _shown_recipe(plan: Plan) -> Recipe:
    """The recipe of the space; that of a trial, if only the plan knows its epochs."""
    if _has_other_length(plan.space) and plan.trials:
        return plan.trials[0].recipe
    return plan.space.recipe


def _field_text(plan: Plan, name: str, level: Level) -> str:
    """A field of the recipe; its least and largest value, if the plan gives several."""
    values = {getattr(trial.recipe, name) for trial in plan.trials}
    if name in ("epochs", "warmup_epochs") and len(values) > 1:
        return f"{min(values)} to {max(values)}"
    return level_text(level)


def _length_notes(plan: Plan) -> list[str]:
    """How long the trials train, if the recipe does not give their length in epochs."""
    if not _has_other_length(plan.space):
        return []
    rows: dict[tuple[int, int, int], list[str]] = {}
    for cell in plan.cells:
        for trial in cell.all_trials[:1]:
            epochs, images = trial.recipe.epochs, trial.data.images
            batch = min(trial.recipe.batch_size, images)
            steps = epochs * (images // batch)
            rows.setdefault((epochs, steps, steps * batch), []).append(str(cell.index))
    lengths = [
        f"{epochs:,} epochs are {steps:,} steps, {images:,} images"
        f" (row{'s' if len(of) > 1 else ''} {', '.join(of)})"
        for (epochs, steps, images), of in sorted(rows.items())
    ]
    return [f"Length in whole epochs: {'; '.join(lengths)}."] if lengths else []


def data_line(data: Data) -> str:
    """What is trained on: a wrong file, or labels that begin at 1, show here."""
    if data.image_width:
        size = f"{data.image_size} x {data.image_width}"
    else:
        size = f"{data.image_size} x {data.image_size}"
    name = Path(data.path).name if data.name == "npz" else data.name
    count = f"{data.images:,} training images" if data.images else "images"
    held_out = f" ({100 * data.validation:g} % are held out)" if data.validation else ""
    return (
        f"Data: {name}, {count} of {size} x {data.channels}{held_out},"
        f" {data.classes} classes."
    )


def _control_notes(plan: Plan) -> list[str]:
    """Which variants have no control of their own, because no width is nearer in cost."""
    if not plan.space.control:
        return []
    name = plan.space.control.removeprefix("iso-")
    controlled = {cell.control_of for cell in plan.cells}
    baseline = next(
        (cell for cell in plan.cells if cell.levels == plan.space.factors.baseline),
        None,
    )
    if baseline is None or baseline.cost is None:
        return []
    word = "FLOPs" if name == "flops" else "parameters"
    baseline_cost = getattr(baseline.cost, name)
    notes = []
    for cell in plan.cells:
        if cell.role != "variant" or not cell.feasible or cell.index in controlled:
            continue
        assert cell.cost is not None
        more = getattr(cell.cost, name) / baseline_cost - 1
        notes.append(
            f"Row {cell.index} has {100 * more:+.1f} % of {word}, and no width is nearer"
            f" than that of row {baseline.index}, which is its control."
        )
    return notes


def _own_recipe(space: Space) -> str:
    """How the user's trainer trains, as far as it is known."""
    from ablate.parts import trainer_named

    trainer = trainer_named(space.network.trainer)
    fields = ", ".join(
        f"{name} varies"
        if f"recipe.{name}" in space.factors.levels
        else f"{name} {level_text(getattr(space.recipe, name))}"
        for name in ("epochs", *trainer.recipe)
    )
    note = f"Trainer {trainer.name}: {fields}."
    if trainer.model is None:
        return f"{note} No costs, because the trainer gives no model."
    if trainer.inputs is None:
        return f"{note} No FLOPs, because the trainer gives no inputs."
    return note


def level_texts(cell: Cell, names: list[str]) -> list[str]:
    """The levels of a cell in the order of the columns; a dash if the model does not
    read the factor, or if its level is that of the backbone.
    """
    levels = shown_levels(cell)
    return [level_text(levels.get(name)) for name in names]


def studies_table(url: str, hidden: Collection[str] = ()) -> Table:
    """The studies of a store.

    Args:
        hidden: names of studies that are left out.
    """
    from ablate.store.reader import Reader

    with Reader(url) as reader:
        stored = reader.studies.all()
    studies = [study for study in stored if study.name not in hidden]
    left_out = len(stored) - len(studies)
    notes = (
        [f"Archived studies: {left_out}; see `ablate status --all`."]
        if left_out
        else []
    )
    if not studies and left_out:
        return Table(["study"], [], [], notes=notes)
    if not studies:
        return Table(
            ["study"], [], [], notes=["No study yet: `ablate run FILE` creates one."]
        )
    data = [_study_data(study) for study in studies]
    # A status that no study has would be an empty column.
    used = set(itertools.chain.from_iterable(study.by_status for study in studies))
    empty = [status.value for status in Status if status not in used]
    shown = plain([_without(row, empty) for row in data])
    return replace(shown, data=data, notes=notes)


def _study_data(study: StudyStatus) -> dict[str, Any]:
    return {
        "study": study.name,
        "trials": sum(study.by_status.values()),
        **{status.value: study.by_status.get(status, 0) for status in Status},
        "epochs": f"{study.epochs_done}/{study.epochs}",
        "last run (UTC)": study.updated_at.isoformat(" ", "seconds"),
        "question": study.question,
    }


def _without(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


def trials_table(name: str, url: str) -> Table:
    """The trials of one study."""
    from ablate.store.reader import Reader

    with Reader(url) as reader:
        study = reader.studies.get(name)
        trials = reader.trials.of(name, beside=True)
    data = []
    for trial in trials:
        row: dict[str, Any] = {}
        for key, value in asdict(trial).items():
            row |= value if key == "metrics" else {key: value}
        data.append(row)
    if not any(row["weights"] for row in data):
        data = [_without(row, ["weights"]) for row in data]
    if study.space.tune is None:
        data = [_without(row, ["stage", "setting"]) for row in data]
    return plain(data, study.question)


def backbones_table(name: str | None) -> Table:
    """Families of backbones: their names, factors and sizes, and what they lack."""
    from ablate import factors
    from ablate.errors import UnknownName, unknown
    from ablate.families import families, members_of
    from ablate.families.family import factor_of

    by_name = families()
    if name is not None and name not in by_name:
        raise UnknownName(unknown("family", name, by_name))
    rows = []
    data = []
    notes = []
    for family in sorted(by_name.values(), key=lambda family: family.rest):
        if name not in (None, family.name):
            continue
        members = members_of(family)
        if family.declared:
            members = [family.name, *members]
        shown = members
        if name is None and len(members) > 4:
            shown = [*members[:3], "..."]
        lacks = _lacks(family)
        sizes = sorted(map(factor_of, family.sizes))
        # `size` and `drop` are defined on a family if one of their parameters can change.
        unchanged = {"size", "drop"} - {size.partition(".")[0] for size in sizes}
        defined = [
            factor
            for factor in factors.catalogue()
            if factor not in lacks and factor not in unchanged
        ]
        rows.append(
            [
                family.name,
                family.about,
                ", ".join(shown),
                str(len(members)),
                ", ".join(defined),
            ]
        )
        shared = {"family": family.name, "factors": ", ".join(defined)}
        data += [{"backbone": member, **shared} for member in members]
        for reason in dict.fromkeys(lacks.values()):
            missing = [factor for factor in lacks if lacks[factor] == reason]
            notes.append(f"{family.name}: no {', '.join(missing)}, because {reason}.")
        changing = ", ".join(sizes) or "none"
        notes.append(
            f"{family.name}: sizes and drop rates that can change: {changing}."
        )
    return Table(
        columns=["family", "about", "names", "number", "factors"],
        rows=rows,
        data=data,
        right=frozenset({"number"}),
        title="Backbones",
        notes=notes,
        prose=frozenset({"about", "names", "factors"}),
    )


def _lacks(family: Family) -> dict[str, str]:
    """The factors that are not defined on a family, each with the reason."""
    from ablate import factors

    lacks = {}
    for factor in factors.catalogue().values():
        for part in factor.needs:
            if part in family.lacks:
                lacks[factor.name] = family.lacks[part]
    return lacks


def factors_table(name: str | None) -> Table:
    """The factors with their parameters, or those of one factor."""
    from ablate import factors
    from ablate.errors import UnknownName, unknown

    by_name = factors.catalogue()
    if name is not None and name not in by_name:
        raise UnknownName(unknown("factor", name, by_name))
    pairs = [
        (factor, parameter)
        for factor in by_name.values()
        for parameter in factor.parameters
        if name in (None, factor.name)
    ]
    notes = [
        f"{factor.name}: {factor.claim} [{factor.source}]"
        for factor in by_name.values()
        if name in (None, factor.name)
    ]
    notes.append("Every field of the recipe is a factor too, such as recipe.lr.")
    return tabulate(_factor_columns(), pairs, title="Factors", notes=notes)


def _factor_columns() -> list[Column[tuple[Factor, Parameter]]]:
    def default(pair: tuple[Factor, Parameter]) -> str:
        if pair[1].default is None:
            return "that of the backbone"
        return level_text(pair[1].default)

    return [
        Column(
            "factor", lambda pair: pair[0].full_name(pair[1].name), heading="factor"
        ),
        Column("kind", lambda pair: pair[0].kind, heading="kind"),
        Column(
            "levels", lambda pair: str(pair[1].allowed), heading="levels", prose=True
        ),
        Column("default", default, heading="default"),
        Column("about", lambda pair: pair[1].about, heading="about", prose=True),
        Column("read_when", lambda pair: pair[1].when),
        Column("source", lambda pair: pair[0].source),
        Column("claim", lambda pair: pair[0].claim),
    ]


def disk_table(places: list[Place], where: str) -> Table:
    """The disk space of checkpoints, by purpose and study."""
    from ablate.trained.disk import FREEABLE, NEEDED_FOR

    sums: dict[tuple[str, str], list[int]] = {}
    for place in places:
        sums.setdefault((place.kind, place.study), []).append(place.size)
    columns: list[Column[tuple[str, str]]] = [
        Column("checkpoints", lambda key: key[0], heading="checkpoints"),
        Column("study", lambda key: key[1], heading="study"),
        Column("folders", lambda key: len(sums[key]), heading="folders", right=True),
        Column(
            "bytes",
            lambda key: sum(sums[key]),
            heading="size",
            text=lambda key: size_text(sum(sums[key])),
            right=True,
        ),
        Column(heading="needed for", text=lambda key: NEEDED_FOR[key[0]]),
    ]
    total = sum(place.size for place in places)
    notes = [f"{size_text(total)} in total."]
    for kind in FREEABLE:
        size = sum(place.size for place in places if place.kind == kind)
        if size:
            notes.append(
                f"{size_text(size)} would be freed by: ablate disk --free {kind}{where}"
            )
    largest_first = sorted(sums, key=lambda key: -sum(sums[key]))
    return tabulate(columns, largest_first, title="Disk space", notes=notes)


def _commit_lines(space: Space) -> list[str]:
    """What each level of the factor `commit` stands for."""
    from ablate.own.commits import COMMIT
    from ablate.parts import trainer_named

    trainer = trainer_named(space.network.trainer)
    levels = space.factors.levels.get(COMMIT, ())
    if not trainer.takes_commits():
        return []
    trees = [trainer.last_tree(str(level)) for level in levels]
    return [f"{line}." for line in difference_lines(trees)]
