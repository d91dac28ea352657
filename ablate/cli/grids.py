"""What the verbs print, as grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, Infeasible
from ablate.records import Architecture, Cost, Level, Plan, Status
from ablate.report.grid import Grid, plain
from ablate.report.table import level_text

if TYPE_CHECKING:
    from ablate.pipeline import Preview

COST_COLUMNS = ("params (M)", "Δ", "FLOPs (G)", "Δ ", "paper FLOPs (G)", "Δ  ", "activations (M)")
COST_NOTE = (
    "Δ: difference to row 0. FLOPs: all counted operators of one image, a multiply-add counts one. "
    "Paper FLOPs: convolutions, linear layers, matrix products, and circulant projections by the paper's formula."
)


def plan_grid(shown: Preview) -> Grid:
    """Every cell of a plan: levels, cost, what becomes of it."""
    plan = shown.plan
    waiting = {trial.hash for trial in shown.to_train}
    names = list(plan.space.factors)
    rows, data = [], []
    for cell in plan.cells:
        left = sum(trial.hash in waiting for trial in cell.trials)
        known = len(cell.trials) - left
        fate = f"same as {cell.same_as}" if cell.same_as is not None else "infeasible" if not cell.trials else "train" if left else "known"
        params, flops = (f"{cell.cost.params / 1e6:.3f}", _giga(cell.cost.flops)) if cell.cost else ("", "")
        counts = [str(left), str(known)] if cell.trials else ["", ""]
        rows.append([str(cell.index), *(level_text(cell.levels[n]) for n in names), params, flops, fate, *counts, cell.note])
        data.append(
            {
                "row": cell.index,
                "role": cell.role,
                **cell.levels,
                **(asdict(cell.cost) if cell.cost else {}),
                "fate": fate,
                "to_train": left,
                "known": known,
                "note": cell.note,
            }
        )
    columns = ["row", *names, "params (M)", "FLOPs (G)", "fate", "to train", "known", "why"]
    return Grid(columns, rows, data, frozenset(columns) - {*names, "fate", "why"}, plan.space.question)


def _giga(flops: float) -> str:
    return f"{flops / 1e9:.3f}" if flops >= 1e8 else f"{flops / 1e9:.5f}"


def space_cost_grid(file: Path, url: str, timing: bool) -> Grid:
    """The cost of each cell of a space, with differences to row 0."""
    from ablate import pipeline, space

    plan = pipeline.cost_plan(space.read(file), url)
    names = list(plan.space.factors)
    reference = plan.cells[0].cost
    rows, data = [], []
    for cell in plan.cells:
        timed = _timing(cell.architecture, timing)
        rows.append([str(cell.index), *(level_text(cell.levels[n]) for n in names), *_cost_texts(cell.cost, reference), *_texts(timed), cell.note])
        data.append({"row": cell.index, **cell.levels, **(asdict(cell.cost) if cell.cost else {}), **timed, "note": cell.note})
    columns = ["row", *names, *COST_COLUMNS, *_timing_columns(timing), "note"]
    if not any(cell.note for cell in plan.cells):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Grid(columns, rows, data, frozenset(columns) - {*names, "note"}, _title(plan), [COST_NOTE])


def _title(plan: Plan) -> str:
    data = plan.space.data
    return f"{plan.space.name}: {plan.space.backbone}, {data.image_size} x {data.image_size} x {data.channels}, {data.classes} classes"


def _cost_texts(cost: Cost | None, reference: Cost | None) -> list[str]:
    if cost is None:
        return [""] * len(COST_COLUMNS)
    texts = []
    for name, unit in (("params", 1e6), ("flops", 1e9), ("flops_paper", 1e9)):
        value = getattr(cost, name)
        digits = 3 if value >= unit / 10 else 5
        delta = (value - getattr(reference, name)) / unit if reference is not None and reference is not cost else None
        texts += [f"{value / unit:.{digits}f}", f"{delta:+.{digits}f}" if delta is not None else ""]
    return [*texts, f"{cost.activations / 1e6:.3f}"]


def _timing_columns(wanted: bool) -> list[str]:
    return ["latency (ms)", "images / s"] if wanted else []


def _timing(architecture: Architecture | None, wanted: bool) -> dict[str, Any]:
    if not wanted:
        return {}
    if architecture is None:
        return {"latency_ms": None, "throughput": None}
    from ablate.cost import time_model

    measured = time_model(architecture)
    return {"latency_ms": round(measured.latency_ms, 3), "throughput": round(measured.throughput, 1)}


def _texts(values: Mapping[str, Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values.values()]


def one_architecture(model: str, settings: list[str], image_size: int | None, classes: int) -> Architecture:
    """The architecture of `--model NAME --set FACTOR=LEVEL ...`."""
    from ablate import factors
    from ablate.backbones import find
    from ablate.models import resolve

    family = find(model)
    said: dict[str, Level] = {}
    for text in settings:
        name, equals, written = text.partition("=")
        if not equals:
            raise AblateError(f"--set {text}: write FACTOR=LEVEL, as in --set shortcuts.count=2")
        if name in said:
            raise AblateError(f"--set {name} is said twice")
        said[name] = _level(written)
    factors.check(said)
    return resolve(model, image_size or family.image_size(model), 3, classes, said)


def _level(text: str) -> Level:
    """A level as YAML reads it."""
    from ablate.space.document import parse

    found: Level = parse(f"level: {text}", "--set").values["level"]
    return found


def model_cost_grid(architecture: Architecture, timing: bool) -> Grid:
    """The cost of one model, beside that of its unmodified backbone."""
    from ablate.cost import count

    unmodified = Architecture(architecture.backbone, architecture.image_size, architecture.channels, architecture.classes)
    found = {"unmodified": unmodified} if architecture.settings else {}
    found[" ".join(f"{k}={level_text(v)}" for k, v in architecture.settings.items()) or "unmodified"] = architecture
    rows, data, reference = [], [], None
    for label, which in found.items():
        try:
            cost = count(which)
        except Infeasible:
            if which is architecture:
                raise
            continue
        reference = reference or cost
        timed = _timing(which, timing)
        rows.append([label, *_cost_texts(cost, reference), *_texts(timed)])
        data.append({"model": architecture.backbone, **which.settings, **asdict(cost), **timed})
    columns = ["settings", *COST_COLUMNS, *_timing_columns(timing)]
    title = f"{architecture.backbone}, {architecture.image_size} x {architecture.image_size} x {architecture.channels}, {architecture.classes} classes"
    return Grid(columns, rows, data, frozenset(columns) - {"settings"}, title, [COST_NOTE.replace("row 0", "the unmodified model")])


def operators_grid(architecture: Architecture) -> Grid:
    """FLOPs of one model by operator."""
    from ablate.cost import operators

    totals = {"matrix": "both", "other": "executed", "elementwise": "neither"}
    data = [
        {"operator": name, "class": group, "in total": totals[group], "flops": number}
        for group, found in operators(architecture).items()
        for name, number in sorted(found.items(), key=lambda item: -item[1])
    ]
    return plain(data, architecture.backbone)


def studies_grid(url: str) -> Grid:
    """All studies of a store."""
    from ablate.store.reader import Reader

    with Reader(url) as reader:
        found = reader.studies()
    data = [
        {
            "study": study.name,
            "trials": sum(study.states.values()),
            **{state.value: study.states.get(state, 0) for state in Status},
            "epochs": f"{study.epochs_done}/{study.epochs}",
            "last run (UTC)": study.updated_at.isoformat(" ", "seconds"),
            "question": study.question,
        }
        for study in found
    ]
    return plain(data) if data else Grid(["study"], [], [], notes=["No study yet: `ablate run FILE` makes one."])


def trials_grid(name: str, url: str) -> Grid:
    """The trials of one study."""
    from ablate.store.reader import Reader

    with Reader(url) as reader:
        study = reader.study(name)
        data = reader.trials(name)
    return plain(data, study.question)


def factors_grid(name: str | None) -> Grid:
    """The catalogue."""
    from ablate import factors
    from ablate.errors import UnknownName, unknown

    found = factors.catalogue()
    if name is not None and name not in found:
        raise UnknownName(unknown("factor", name, found))
    rows, data = [], []
    for factor in found.values():
        if name not in (None, factor.name):
            continue
        for parameter in factor.parameters:
            full = factor.full_name(parameter.name)
            default = "as the backbone" if parameter.default is None else level_text(parameter.default)
            rows.append([full, factor.kind, str(parameter.allowed), default, parameter.about])
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
    notes = [f"{factor.name}: {factor.claim} [{factor.source}]" for factor in found.values() if name in (None, factor.name)]
    notes.append("Every field of the recipe is a factor too, as recipe.lr.")
    return Grid(["factor", "kind", "levels", "default", "about"], rows, data, title="Factors", notes=notes)
