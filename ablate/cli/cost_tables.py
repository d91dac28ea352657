"""The tables of `ablate cost`: counted costs, and on request measured times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ablate.cli.output import Steps
from ablate.cli.tables import level_texts
from ablate.errors import AblateError
from ablate.records import Architecture, Cell, Cost, Data, Level, Plan, level_text
from ablate.report.folding import folding_notes
from ablate.report.summary import level_columns, shown_levels
from ablate.report.table import Column, Table, plain, tabulate
from ablate.report.units import Unit, cost_text, cost_units

if TYPE_CHECKING:
    from ablate.training.timing import Conditions, Timing

Record = TypeVar("Record")

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
# A note names the rows whose time and FLOPs, relative to row 0, differ by this factor.
APART = 1.1


def space_cost_table(file: Path, url: str, timing: bool) -> Table:
    """The cost of each cell of a space, with differences to row 0."""
    from ablate import pipeline, space

    plan = pipeline.cost_plan(space.read(file), url)
    names = list(plan.space.factors.levels)
    reference = plan.cells[0].cost
    units = cost_units((cell.cost for cell in plan.cells), COSTS)
    times = _space_times(plan) if timing else None
    shown = [cell for cell in plan.cells if cell.same_as is None]
    has_notes = any(cell.note for cell in shown)
    columns: list[Column[Cell]] = [
        Column("row", lambda cell: cell.index, heading="row", right=True),
        Column("same_as", lambda cell: cell.same_as),
        Column(fields=lambda cell: level_columns(shown_levels(cell))),
        Column(fields=lambda cell: asdict(cell.cost) if cell.cost else {}),
        *(_level_column(*pair, names) for pair in enumerate(names)),
        *_cost_columns(units, reference, lambda cell: cell.cost),
        *_time_columns(times, lambda cell: cell.architecture),
        Column("note", lambda cell: cell.note, heading="note" if has_notes else ""),
    ]
    rows_of = [(f"row {cell.index}", cell.architecture, cell.cost) for cell in shown]
    return tabulate(
        columns,
        plan.cells,
        shown=shown,
        title=_title(plan),
        notes=[COST_NOTE, *_time_notes(times, rows_of), *folding_notes(plan.cells)],
    )


def _level_column(number: int, name: str, names: list[str]) -> Column[Cell]:
    return Column(heading=name, text=lambda cell: level_texts(cell, names)[number])


def _title(plan: Plan) -> str:
    if "backbone" in plan.space.factors.levels:
        backbone = "several backbones"
    else:
        backbone = plan.space.network.backbone
    if plan.space.network.trainer:
        return f"{plan.space.name}: trainer {plan.space.network.trainer}"
    return f"{plan.space.name}: {backbone}, {_input(plan.space.data)}"


def _input(shape: Data | Architecture) -> str:
    return (
        f"{shape.image_size} x {shape.image_size} x {shape.channels}, {shape.classes}"
        " classes"
    )


def _cost_columns(
    units: Mapping[str, Unit],
    reference: Cost | None,
    cost_of: Callable[[Record], Cost | None],
) -> Iterator[Column[Record]]:
    """Yields the columns of costs. A difference has the name of its cost, so that
    headings are unique.
    """
    for name, unit in units.items():
        yield _cost_column(name, unit, cost_of)
        if name in WITH_DELTA:
            yield _delta_column(name, unit, reference, cost_of)


def _cost_column(
    name: str, unit: Unit, cost_of: Callable[[Record], Cost | None]
) -> Column[Record]:
    return Column(
        heading=f"{COSTS[name]} ({unit.letter})",
        text=lambda record: cost_text(cost_of(record), name, unit),
        right=True,
    )


def _delta_column(
    name: str,
    unit: Unit,
    reference: Cost | None,
    cost_of: Callable[[Record], Cost | None],
) -> Column[Record]:
    def text(record: Record) -> str:
        cost = cost_of(record)
        # By identity: the reference itself shows no difference.
        if cost is None or reference is None or cost is reference:
            return ""
        return unit.text(getattr(cost, name) - getattr(reference, name), signed=True)

    return Column(heading=f"Δ {COSTS[name]}", text=text, right=True)


@dataclass(frozen=True)
class _Times:
    """Measured times, by the hash of the architecture.

    Attributes:
        reference: what the others are compared with, such as "row 0".
        conditions: what they were measured with, in words.
        by_hash: None for a network that needs more memory than the GPU has.
    """

    reference: str
    conditions: str
    by_hash: Mapping[str, Timing | None]

    def of(self, architecture: Architecture | None) -> Timing | None:
        if architecture is None:
            return None
        return self.by_hash[architecture.hash]

    def is_reference(self, architecture: Architecture) -> bool:
        return architecture.hash == next(iter(self.by_hash))


def _space_times(plan: Plan) -> _Times:
    """Times the networks of a plan under the conditions of its trials.

    Raises AblateError if a trainer of the user builds them.
    """
    import torch

    from ablate.training.timing import Conditions

    space = plan.space
    if space.network.trainer:
        raise AblateError(
            f"--timing: the trainer {space.network.trainer} builds its own networks; only"
            " networks that ablate builds can be timed"
        )
    device = "cpu"
    if space.resources.gpus:
        device = "cuda"
        if not torch.cuda.is_available():
            raise AblateError(
                f"--timing: resources.gpus = {space.resources.gpus:g}, but this"
                " process sees no GPU; run the command on a machine with GPUs, or"
                " remove resources.gpus"
            )
    # What a process of a trial computes at once.
    parts = space.recipe.accumulate * space.resources.processes
    conditions = Conditions(
        images=max(1, space.recipe.batch_size // parts),
        precision=space.recipe.precision,
        device=device,
        threads=space.resources.threads,
    )
    feasible = [cell for cell in plan.cells if cell.architecture]
    reference = f"row {feasible[0].index}" if feasible else "row 0"
    return _timed(
        [cell.architecture for cell in feasible if cell.architecture],
        reference,
        conditions,
    )


def _timed(
    architectures: Sequence[Architecture], reference: str, conditions: Conditions
) -> _Times:
    """Times each architecture beside the first one.

    Raises AblateError if the GPU has too little memory for the first one.
    """
    import torch

    from ablate.training.timing import Stopwatch

    different = {architecture.hash: architecture for architecture in architectures}
    if not different:
        return _Times(reference, "", {})
    try:
        watch = Stopwatch(architectures[0], conditions)
    except torch.OutOfMemoryError as error:
        raise AblateError(
            f"--timing: even with two images a step, {reference} needs more memory than"
            " the GPU has; choose a smaller network or image_size, or a larger GPU"
        ) from error
    steps = Steps("timed network")
    measured: dict[str, Timing | None] = {}
    for done, (key, architecture) in enumerate(different.items(), start=1):
        try:
            measured[key] = watch.measure(architecture)
        except torch.OutOfMemoryError:
            measured[key] = None
        steps(done, len(different))
    plural = "" if watch.images == 1 else "s"
    description = (
        f"medians of rounds in turns with {reference}; {watch.images} image{plural},"
        f" {conditions.text}"
    )
    return _Times(reference, description, measured)


def _time_columns(
    times: _Times | None, architecture_of: Callable[[Record], Architecture | None]
) -> Iterator[Column[Record]]:
    """Yields the columns of measured times; none if nothing was measured."""
    if times is None:
        return
    for key, heading, name, digits, form in (
        ("latency_ms", "latency (ms)", "latency_ms", 3, ".3g"),
        ("throughput", "images / s", "inference", 1, ".1f"),
        ("training", "training images / s", "training", 1, ".1f"),
        ("step_ratio", f"step time (x {times.reference})", "step_ratio", 3, ".2f"),
    ):
        yield _time_column(key, heading, name, digits, form, times, architecture_of)


def _time_column(
    key: str,
    heading: str,
    name: str,
    digits: int,
    form: str,
    times: _Times,
    architecture_of: Callable[[Record], Architecture | None],
) -> Column[Record]:
    def seconds(record: Record) -> float | None:
        return getattr(times.of(architecture_of(record)), name, None)

    def value(record: Record) -> float | None:
        measured = seconds(record)
        return None if measured is None else round(measured, digits)

    def text(record: Record) -> str:
        measured = seconds(record)
        return "" if measured is None else f"{measured:{form}}"

    return Column(key, value, heading=heading, text=text, right=True)


def _time_notes(
    times: _Times | None,
    rows: Sequence[tuple[str, Architecture | None, Cost | None]],
) -> list[str]:
    """Says how times were measured, and where they disagree with FLOPs."""
    if times is None or not times.by_hash:
        return []
    notes = [
        f"Times: {times.conditions}. images / s: inference. Step time: forward,"
        f" backward and AdamW, relative to {times.reference}."
    ]
    base = next(cost.flops for _, architecture, cost in rows if architecture and cost)
    if None in times.by_hash.values():
        notes.append("Without times: the GPU has too little memory.")
    apart = []
    for name, architecture, cost in rows:
        timing = times.of(architecture)
        if architecture is None or timing is None or cost is None:
            continue
        if times.is_reference(architecture):
            continue
        if not base or not cost.flops:
            continue
        flops = cost.flops / base
        if abs(math.log(timing.step_ratio / flops)) > math.log(APART):
            apart.append(
                f"{name} (time x {timing.step_ratio:.2f}, FLOPs x {flops:.2f})"
            )
    if apart:
        notes.append(
            f"Time and FLOPs differ by more than {APART - 1:.0%} in "
            + ", ".join(apart)
            + "."
        )
    return notes


def one_architecture(
    model: str, settings: list[str], image_size: int | None, classes: int
) -> Architecture:
    """The architecture of `--model NAME --set FACTOR=LEVEL ...`."""
    from ablate import factors
    from ablate.families import find, resolve

    family = find(model)
    levels: dict[str, Level] = {}
    for text in settings:
        name, equals, written = text.partition("=")
        if not equals:
            raise AblateError(
                f"--set {text}: write FACTOR=LEVEL, as in --set shortcuts.count=2"
            )
        if name in levels:
            raise AblateError(f"--set {name} is given twice")
        levels[name] = _level(written)
    factors.check(levels, model)
    return resolve(model, image_size or family.image_size(model), 3, classes, levels)


def _level(text: str) -> Level:
    """A level as YAML reads it."""
    from ablate.text.document import parse

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
    times = _model_times(list(architectures.items())) if timing else None
    columns: list[Column[str]] = [
        Column("model", lambda label: architecture.backbone),
        Column(heading="settings", text=lambda label: label),
        Column(fields=lambda label: architectures[label].settings),
        Column(fields=lambda label: asdict(costs[label])),
        *_cost_columns(units, reference, lambda label: costs[label]),
        *_time_columns(times, lambda label: architectures[label]),
    ]
    rows_of = [(label, which, costs[label]) for label, which in architectures.items()]
    title = f"{architecture.backbone}, {_input(architecture)}"
    return tabulate(
        columns,
        architectures,
        title=title,
        notes=[
            COST_NOTE.replace("row 0", "the unmodified model"),
            *_time_notes(times, rows_of),
        ],
    )


def _model_times(labelled: Sequence[tuple[str, Architecture]]) -> _Times:
    """Times a model beside the unmodified one, on a GPU if there is one."""
    import torch

    from ablate.training.timing import Conditions

    device = "cuda" if torch.cuda.is_available() else "cpu"
    conditions = Conditions(device=device, threads=torch.get_num_threads())
    reference = "unmodified" if len(labelled) > 1 else "this model"
    return _timed([architecture for _, architecture in labelled], reference, conditions)


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
