"""Figures as the papers show them: diagnostics by layer, one line an architecture. Equal data give equal bytes in SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError
from ablate.report.layers import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS = ("svg", "png", "pdf")
# Okabe and Ito's colours, told apart by colour-blind eyes too; lines differ in their marks as well.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
MARKS = "osD^vP*X"


def save_layers(file: Path, title: str, axis: str, form: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> None:
    """Draws one diagnostic to a file: numbers as lines over layers, vectors as lines of layers over entries, matrices as images.

    Args:
        form: number, vector or matrix.
        drawn: lines by the name of the diagnostic; a second one (a bound) is dashed.

    Raises:
        AblateError: the file's ending is none of svg, png and pdf.
    """
    ending = file.suffix.removeprefix(".")
    if ending not in FORMS:
        raise AblateError(f"{file}: a figure is {', '.join(FORMS)}; name a file like {file.with_suffix('.svg')}")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ablate"
    figure = {"number": _over_layers, "vector": _over_entries, "matrix": _images}[form](title, axis, drawn)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150, metadata={"Date": None} if ending == "svg" else {})


def _figure(wide: float, high: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(wide, high), layout="constrained")


def _over_layers(title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure = _figure(7, 4)
    place = figure.add_subplot()
    for number, (name, found) in enumerate(drawn):
        for index, line in enumerate(found):
            place.plot(
                list(line.layers),
                list(line.layers.values()),
                color=COLOURS[index % len(COLOURS)],
                marker=MARKS[index % len(MARKS)],
                linestyle="--" if number else "-",
                markersize=4,
                label=line.label if len(drawn) == 1 else f"{line.label} ({name.rpartition('.')[2]})",
            )
    everything = [value for _, found in drawn for line in found for value in line.layers.values()]
    if min(everything) > 0 and max(everything) > 50 * min(everything):
        place.set_yscale("log")
    place.xaxis.set_major_locator(MaxNLocator(integer=True))
    place.set(xlabel="layer", ylabel=axis, title=title)
    place.grid(alpha=0.3)
    place.legend(fontsize=8)
    return figure


def _over_entries(title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    """One panel a cell; layers from light to dark."""
    found = [line for _, some in drawn for line in some]
    columns = min(3, len(found))
    figure = _figure(3.4 * columns, 2.8 * math.ceil(len(found) / columns))
    figure.suptitle(title, fontsize=10)
    for index, line in enumerate(found):
        place = figure.add_subplot(math.ceil(len(found) / columns), columns, index + 1)
        for rank, (layer, values) in enumerate(line.layers.items()):
            shade = 0.85 - 0.85 * rank / max(1, len(line.layers) - 1)
            place.plot(values, color=str(shade), label=f"layer {layer}" if rank in (0, len(line.layers) - 1) else None)
        place.set(xlabel=axis, yscale="log")
        place.set_title(line.label, fontsize=8)
        place.legend(fontsize=7)
    return figure


def _images(title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    """One row of panels a cell: its first, middle and last layer."""
    found = [line for _, some in drawn for line in some]
    figure = _figure(8, 2.6 * len(found))
    figure.suptitle(title, fontsize=10)
    panels: list[Any] = []
    image: Any = None
    for row, line in enumerate(found):
        layers = list(line.layers)
        for column, layer in enumerate([layers[0], layers[len(layers) // 2], layers[-1]]):
            place = figure.add_subplot(len(found), 3, 3 * row + column + 1)
            image = place.imshow(line.layers[layer], vmin=-1, vmax=1, cmap="cividis", interpolation="nearest")
            place.set_title(f"{line.label}, layer {layer}", fontsize=7)
            place.set(xticks=[], yticks=[], xlabel=axis)
            panels.append(place)
    figure.colorbar(image, ax=panels, shrink=0.8)
    return figure
