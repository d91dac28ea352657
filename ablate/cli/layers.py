"""What `diagnose` measures and `plot --diagnostic` draws, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.output import Steps, tell
from ablate.errors import AblateError, UnknownName
from ablate.report.table import Table
from ablate.text import advice

if TYPE_CHECKING:
    from ablate.pipeline import Options
    from ablate.results.study import Study


def diagnosed(
    targets: tuple[str, ...], names: tuple[str, ...], images: int, options: Options
) -> Iterator[Table]:
    """Takes diagnostics, and yields one table per study and stored diagnostic."""
    from ablate import diagnostics
    from ablate.records import Diagnostics
    from ablate.report.layer_means import layers_table
    from ablate.results.study import Study
    from ablate.trained import diagnosis

    chosen = tuple(diagnostics.find(name).name for name in names) or diagnostics.usual()
    looked = diagnosis.diagnose(
        targets, Diagnostics(chosen, images), options, Steps("trial")
    )
    tell(f"diagnostics of {looked.trials} trials measured")
    if looked.without:
        folder = options.checkpoints or options.runs / "checkpoints"
        tell(
            f"{looked.without} trials are unfinished, or have no checkpoint under"
            f" {folder}"
        )
    if not looked.trials:
        raise AblateError(
            "no completed trial has a checkpoint, so nothing can be measured; trials keep"
            " their checkpoints unless the space has `keep: none`, or unless `ablate disk"
            " --free` has removed them"
        )
    for study in looked.studies:
        shown = Study(study, options.url)
        for name in chosen:
            for stored in _stored(shown, name):
                yield layers_table(
                    stored, diagnostics.find(name).about, shown.layers(stored)
                )


def drawn_layers(
    study: str, diagnostic: str, to: Path, rows: list[int] | None, url: str
) -> None:
    """Draws a stored diagnostic; measured values and their bound share a figure."""
    from ablate import diagnostics
    from ablate.report.matplotlib_charts import save_layers
    from ablate.results.study import Study

    results = Study(study, url)
    record = diagnostics.find(diagnostic.partition(".")[0])
    stored = _stored(results, diagnostic)
    if not stored:
        raise UnknownName(
            f"{study} has no diagnostic '{diagnostic}' stored; measure it with: "
            + advice.command("diagnose", study, "--name", record.name)
        )
    # What was measured comes before its bound.
    ordered = sorted(stored, key=lambda name: (name.endswith(".bound"), name))
    shown = []
    having = set()
    for name in ordered:
        lines = results.layers(name)
        if rows is not None:
            lines = [line for line in lines if line.cell in rows]
        shown.append((name, lines))
        having |= {line.cell for line in lines}
    missing = sorted(set(rows or ()) - having)
    if missing or not having:
        raise AblateError(
            f"no row {', '.join(map(str, missing))} has the diagnostic {diagnostic};"
            " the rows are in:"
            f" {advice.command('table', study)}"
        )
    save_layers(to, f"{study}: {record.name.replace('_', ' ')}", record, shown)


def _stored(study: Study, name: str) -> list[str]:
    """The names under which a diagnostic is stored.

    These are its own name, or that name with endings such as `.bound`.
    """
    return [
        stored
        for stored in study.diagnostics()
        if stored == name or stored.startswith(name + ".")
    ]
