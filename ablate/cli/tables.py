"""The tables that the verbs print."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate import tasks
from ablate.errors import AblateError
from ablate.records import Architecture, Cell, Cost, Data, Level, Plan, Space, Status
from ablate.report.folding import folding_notes
from ablate.report.summary import level_text, shown_levels
from ablate.report.tables import Table, plain
from ablate.report.units import Unit, cost_text, cost_units, size_text

if TYPE_CHECKING:
    from ablate.disk import Place
    from ablate.families.family import Family
    from ablate.pipeline import Preview
    from ablate.store.catalogue import StudyStatus

COSTS = {
    "params": "params",
    "flops": "FLOPs",
    "flops_paper": "paper FLOPs",
    "activations": "activations",
}
WITH_DELTA = ("params", "flops", "flops_paper")
COST_NOTE = (
    "Δ: difference from row 0. FLOPs: all counted operators of one image (a"
    " multiply-add counts as one). Paper FLOPs: convolutions, linear layers, matrix"
    " products, and circulant projections by the paper's formula."
)


def plan_table(shown: Preview) -> Table:
    """Every cell of a plan: levels, cost, outcome."""
    plan = shown.plan
    waiting = {trial.hash for trial in shown.to_train}
    names = list(plan.space.factors)
    units = cost_units((cell.cost for cell in plan.cells), ("params", "flops"))
    rows = []
    data = []
    for cell in plan.cells:
        left = sum(trial.hash in waiting for trial in cell.trials)
        known = len(cell.trials) - left
        outcome = _outcome(cell, left)
        # Folded cells are in the data only; a note below the table lists them.
        if cell.same_as is None:
            row = [str(cell.index), *_level_texts(cell, names)]
            row += _in_units(cell.cost, units)
            row.append(outcome)
            row += [str(left), str(known)] if cell.trials else ["", ""]
            row.append(cell.note)
            rows.append(row)
        data.append(
            {
                "row": cell.index,
                "role": cell.role,
                **shown_levels(cell),
                **(asdict(cell.cost) if cell.cost else {}),
                "outcome": outcome,
                "same_as": cell.same_as,
                "to_train": left,
                "known": known,
                "note": cell.note,
            }
        )
    titles = {"params": "params", "flops": "FLOPs"}
    costs = [f"{titles[name]} ({unit.letter})" for name, unit in units.items()]
    columns = ["row", *names, *costs, "outcome", "to train", "known", "why"]
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset(columns) - {*names, "outcome", "why"},
        title=plan.space.question,
        notes=_plan_notes(plan),
    )


def _outcome(cell: Cell, left: int) -> str:
    """What a run does with a cell of which `left` trials are not known yet."""
    if cell.same_as is not None:
        return "folded"
    if not cell.trials:
        return "infeasible"
    if left:
        return "train"
    return "known"


def _in_units(cost: Cost | None, units: Mapping[str, Unit]) -> list[str]:
    return [cost_text(cost, name, unit) for name, unit in units.items()]


def _plan_notes(plan: Plan) -> list[str]:
    """Which cells are folded, which effects a fraction of the grid cannot separate, and
    how every cell is trained.
    """
    from ablate.plan.designs import aliases

    notes = folding_notes(plan.cells)
    if plan.space.strategy is None and plan.space.design.name in (
        "fractional",
        "plackett-burman",
    ):
        notes += [f"Not separable: {line}." for line in aliases(plan.space)]
    if plan.space.trainer:
        return [*notes, _own_recipe(plan.space)]
    unread = tasks.find(plan.space.task).unread
    recipe = ", ".join(
        f"{name} {level_text(level)}"
        for name, level in plan.space.recipe.summary().items()
        if name not in unread
    )
    warmup = plan.space.recipe.warmup_epochs
    cut = plan.space.warmup_fits and any(
        int(epochs) <= warmup for epochs in plan.space.factors.get("recipe.epochs", ())
    )
    if cut:
        notes += [
            "The warm-up of a cell is at least one epoch shorter than its training."
        ]
    return [*notes, f"Recipe: {recipe}; all other fields are off or at their defaults."]


def _own_recipe(space: Space) -> str:
    """How the user's trainer trains, as far as it is known."""
    from ablate.parts import trainer_named

    trainer = trainer_named(space.trainer)
    fields = ", ".join(
        f"{name} {level_text(getattr(space.recipe, name))}"
        for name in ("epochs", *trainer.recipe)
    )
    note = f"Trainer {trainer.name}: {fields}."
    if trainer.model is None:
        return f"{note} No costs, because the trainer gives no model."
    if trainer.inputs is None:
        return f"{note} No FLOPs, because the trainer gives no inputs."
    return note


def _level_texts(cell: Cell, names: list[str]) -> list[str]:
    """The levels of a cell in the order of the columns; a dash if the model does not
    read the factor, or if its level is that of the backbone.
    """
    levels = shown_levels(cell)
    return [level_text(levels.get(name)) for name in names]


def space_cost_table(file: Path, url: str, timing: bool) -> Table:
    """The cost of each cell of a space, with differences to row 0."""
    from ablate import pipeline, space

    plan = pipeline.cost_plan(space.read(file), url)
    names = list(plan.space.factors)
    reference = plan.cells[0].cost
    units = cost_units((cell.cost for cell in plan.cells), COSTS)
    rows, data = [], []
    for cell in plan.cells:
        timed = _timing(cell.architecture, timing)
        if cell.same_as is None:
            rows.append(
                [
                    str(cell.index),
                    *_level_texts(cell, names),
                    *_cost_texts(cell.cost, reference, units),
                    *_texts(timed),
                    cell.note,
                ]
            )
        data.append(
            {
                "row": cell.index,
                "same_as": cell.same_as,
                **shown_levels(cell),
                **(asdict(cell.cost) if cell.cost else {}),
                **timed,
                "note": cell.note,
            }
        )
    columns = ["row", *names, *_cost_columns(units), *_timing_columns(timing), "note"]
    if not any(cell.note for cell in plan.cells if cell.same_as is None):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset(columns) - {*names, "note"},
        title=_title(plan),
        notes=[COST_NOTE, *folding_notes(plan.cells)],
    )


def _title(plan: Plan) -> str:
    if "backbone" in plan.space.factors:
        backbone = "several backbones"
    else:
        backbone = plan.space.backbone
    if plan.space.trainer:
        return f"{plan.space.name}: trainer {plan.space.trainer}"
    return f"{plan.space.name}: {backbone}, {_input(plan.space.data)}"


def _input(shape: Data | Architecture) -> str:
    return (
        f"{shape.image_size} x {shape.image_size} x {shape.channels}, {shape.classes}"
        " classes"
    )


def _cost_columns(units: Mapping[str, Unit]) -> list[str]:
    """Headings. A difference has the name of its cost, so that headings are unique."""
    columns = []
    for name, unit in units.items():
        heading = COSTS[name]
        columns.append(f"{heading} ({unit.letter})")
        if name in WITH_DELTA:
            columns.append(f"Δ {heading}")
    return columns


def _cost_texts(
    cost: Cost | None, reference: Cost | None, units: Mapping[str, Unit]
) -> list[str]:
    texts = []
    for name, unit in units.items():
        value = getattr(cost, name) if cost else None
        # By identity: the reference itself shows no difference.
        if value is not None and reference is not None and reference is not cost:
            delta = value - getattr(reference, name)
        else:
            delta = None
        texts.append(cost_text(cost, name, unit))
        if name in WITH_DELTA:
            texts.append(unit.text(delta, signed=True) if delta is not None else "")
    return texts


def _timing_columns(wanted: bool) -> list[str]:
    if wanted:
        return ["latency (ms)", "images / s"]
    return []


def _timing(architecture: Architecture | None, wanted: bool) -> dict[str, Any]:
    if not wanted:
        return {}
    if architecture is None:
        return {"latency_ms": None, "throughput": None}
    from ablate.cost import time_model

    measured = time_model(architecture)
    return {
        "latency_ms": round(measured.latency_ms, 3),
        "throughput": round(measured.throughput, 1),
    }


def _texts(values: Mapping[str, Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values.values()]


def one_architecture(
    model: str, settings: list[str], image_size: int | None, classes: int
) -> Architecture:
    """The architecture of `--model NAME --set FACTOR=LEVEL ...`."""
    from ablate import factors
    from ablate.families import find, resolve

    family = find(model)
    said: dict[str, Level] = {}
    for text in settings:
        name, equals, written = text.partition("=")
        if not equals:
            raise AblateError(
                f"--set {text}: write FACTOR=LEVEL, as in --set shortcuts.count=2"
            )
        if name in said:
            raise AblateError(f"--set {name} is given twice")
        said[name] = _level(written)
    factors.check(said)
    return resolve(model, image_size or family.image_size(model), 3, classes, said)


def _level(text: str) -> Level:
    """A level as YAML reads it."""
    from ablate.document import parse

    level: Level = parse(f"level: {text}", "--set").values["level"]
    return level


def model_cost_table(architecture: Architecture, timing: bool) -> Table:
    """The cost of one model, beside that of its unmodified backbone."""
    from ablate.families import families
    from ablate.scheduling.cost_cache import CostCache

    count = CostCache({})
    unmodified = Architecture(
        backbone=architecture.backbone,
        image_size=architecture.image_size,
        channels=architecture.channels,
        classes=architecture.classes,
    )
    # A family's declared form has no unmodified model: all its numbers are settings.
    if architecture.settings and architecture.backbone not in families():
        architectures = {"unmodified": unmodified}
    else:
        architectures = {}
    architectures[
        " ".join(f"{k}={level_text(v)}" for k, v in architecture.settings.items())
        or "unmodified"
    ] = architecture
    costs = {label: count(which) for label, which in architectures.items()}
    reference = next(iter(costs.values()))
    units = cost_units(costs.values(), COSTS)
    rows, data = [], []
    for label, which in architectures.items():
        timed = _timing(which, timing)
        rows.append(
            [label, *_cost_texts(costs[label], reference, units), *_texts(timed)]
        )
        data.append(
            {
                "model": architecture.backbone,
                **which.settings,
                **asdict(costs[label]),
                **timed,
            }
        )
    columns = ["settings", *_cost_columns(units), *_timing_columns(timing)]
    title = f"{architecture.backbone}, {_input(architecture)}"
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset(columns) - {"settings"},
        title=title,
        notes=[COST_NOTE.replace("row 0", "the unmodified model")],
    )


def operators_table(architecture: Architecture) -> Table:
    """FLOPs of one model by operator."""
    from ablate.cost import operators

    totals = {
        "matrix": "flops, flops_paper",
        "other": "flops",
        "elementwise": "none",
    }
    data = []
    for group, counts in operators(architecture).items():
        for name, number in sorted(counts.items(), key=lambda item: -item[1]):
            data.append(
                {
                    "operator": name,
                    "class": group,
                    "counted in": totals[group],
                    "flops": number,
                }
            )
    return plain(data, architecture.backbone)


def studies_table(url: str) -> Table:
    """All studies of a store."""
    from ablate.store.reader import Reader

    with Reader(url) as reader:
        studies = reader.studies()
    if not studies:
        return Table(
            ["study"], [], [], notes=["No study yet: `ablate run FILE` creates one."]
        )
    data = [_study_data(study) for study in studies]
    # A status that no study has would be an empty column.
    used = set(itertools.chain.from_iterable(study.by_status for study in studies))
    empty = [status.value for status in Status if status not in used]
    return replace(plain([_without(row, empty) for row in data]), data=data)


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
        study = reader.study(name)
        data = reader.trials(name)
    if not any(row["weights"] for row in data):
        data = [_without(row, ["weights"]) for row in data]
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
        defined = [factor for factor in factors.catalogue() if factor not in lacks]
        rows.append(
            [
                family.name,
                family.about,
                ", ".join(shown),
                str(len(members)),
                ", ".join(defined),
            ]
        )
        known = {"family": family.name, "factors": ", ".join(defined)}
        data += [{"backbone": member, **known} for member in members]
        for reason in dict.fromkeys(lacks.values()):
            missing = [factor for factor in lacks if lacks[factor] == reason]
            notes.append(f"{family.name}: no {', '.join(missing)}, because {reason}.")
        sizes = ", ".join(sorted(map(factor_of, family.sizes)))
        notes.append(f"{family.name}: sizes that can change: {sizes}.")
    return Table(
        columns=["family", "about", "names", "number", "factors"],
        rows=rows,
        data=data,
        right=frozenset({"number"}),
        title="Backbones",
        notes=notes,
    )


def _lacks(family: Family) -> dict[str, str]:
    """The factors that are not defined on a family, each with the reason."""
    from ablate import factors

    lacks = {}
    for factor in factors.catalogue().values():
        for slot in factor.needs:
            if slot in family.lacks:
                lacks[factor.name] = family.lacks[slot]
    return lacks


def factors_table(name: str | None) -> Table:
    """The factors with their parameters, or those of one factor."""
    from ablate import factors
    from ablate.errors import UnknownName, unknown

    by_name = factors.catalogue()
    if name is not None and name not in by_name:
        raise UnknownName(unknown("factor", name, by_name))
    rows, data = [], []
    for factor in by_name.values():
        if name not in (None, factor.name):
            continue
        for parameter in factor.parameters:
            full = factor.full_name(parameter.name)
            if parameter.default is None:
                default = "that of the backbone"
            else:
                default = level_text(parameter.default)
            rows.append(
                [full, factor.kind, str(parameter.allowed), default, parameter.about]
            )
            data.append(
                {
                    "factor": full,
                    "kind": factor.kind,
                    "levels": str(parameter.allowed),
                    "default": default,
                    "about": parameter.about,
                    "read_when": parameter.when,
                    "source": factor.source,
                    "claim": factor.claim,
                }
            )
    notes = [
        f"{factor.name}: {factor.claim} [{factor.source}]"
        for factor in by_name.values()
        if name in (None, factor.name)
    ]
    notes.append("Every field of the recipe is a factor too, such as recipe.lr.")
    return Table(
        ["factor", "kind", "levels", "default", "about"],
        rows,
        data,
        title="Factors",
        notes=notes,
    )


def disk_table(places: list[Place], where: str) -> Table:
    """The disk space of checkpoints, by purpose and study."""
    from ablate.disk import FREEABLE, NEEDED_FOR

    sums: dict[tuple[str, str], list[int]] = {}
    for place in places:
        sums.setdefault((place.kind, place.study), []).append(place.size)
    keys = sorted(sums, key=lambda key: -sum(sums[key]))
    rows = [
        [
            kind,
            study,
            str(len(sums[kind, study])),
            size_text(sum(sums[kind, study])),
            NEEDED_FOR[kind],
        ]
        for kind, study in keys
    ]
    data = [
        {
            "checkpoints": kind,
            "study": study,
            "folders": len(sums[kind, study]),
            "bytes": sum(sums[kind, study]),
        }
        for kind, study in keys
    ]
    total = sum(place.size for place in places)
    notes = [f"{size_text(total)} in total."]
    for kind in FREEABLE:
        size = sum(place.size for place in places if place.kind == kind)
        if size:
            notes.append(
                f"{size_text(size)} would be freed by: ablate disk --free {kind}{where}"
            )
    columns = ["checkpoints", "study", "folders", "size", "needed for"]
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset({"folders", "size"}),
        title="Disk space",
        notes=notes,
    )
