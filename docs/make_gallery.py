"""Runs the studies that train on a workstation, and writes a page with each result.

    make gallery

The studies train in a few minutes each; STORE=FILE keeps their trials, so a second call
only writes the pages. The small versions of the papers' tables need CIFAR-10 and a GPU:
`make twins`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import ablate
from ablate.report.wording import sentence
from benchmarks.machine import machine_text

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "gallery"
FIGURES = ROOT / "docs" / "figures"
# The studies, with the figures that say most about each.
STUDIES = {
    "quickstart": ("effects",),
    "until-decided": ("effects",),
    "search": ("pareto", "parallel"),
}
# More sentences are no help: the table has them too.
MOST_VERDICTS = 10
ALT = {
    "effects": "The effect of each row, compared with row 0",
    "pareto": "Metric versus cost of each cell",
    "parallel": "The levels, the cost and the metric of each cell",
}


def page(name: str, study: ablate.Study) -> str:
    """The page of a study; its figures are written beside it."""
    results, declared = study.read()
    parts = [f"# {name}", f"`ablate run search_spaces/{name}.yaml`"]
    if results.expect:
        parts.append(f"Expected: {results.expect}")
    parts.append(str(study.table(form="md")).strip())
    verdicts = [
        f"- {sentence(effect, results.metric, declared.criterion.margin)}"
        for effect in study.effects()
        if effect.estimate is not None
    ]
    if 0 < len(verdicts) <= MOST_VERDICTS:
        parts += ["## Verdicts", "\n".join(verdicts)]
    for of in STUDIES[name]:
        file = FIGURES / f"{name}-{of}.svg"
        study.plot(of).savefig(file, metadata={"Date": None})
        parts.append(f"![{ALT[of]}](../figures/{file.name})")
    parts.append(f"Command: `make gallery`, {machine_text()}.")
    return "\n\n".join(parts) + "\n"


def main(store: str) -> None:
    """Runs the studies in one store and writes their pages."""
    for name in STUDIES:
        study = ablate.run(str(ROOT / "search_spaces" / f"{name}.yaml"), store=store)
        (PAGES / f"{name}.md").write_text(page(name, study), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(str(Path(folder, "gallery.db")))
