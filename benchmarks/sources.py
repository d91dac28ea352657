"""How much of the noise of a training each source makes: `make bench-sources STORE=FILE`.

Three small networks are trained on scikit-learn's digits, a tenth of the training images
held out, with twenty seeds each. A seed decides the initial weights only, what is drawn
while training only, the split only, or all three. The table has the standard deviation of
the accuracy on the test images.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

from machine import machine_text

import ablate

SPACE = """\
name: NAME
question: How much noise does each source make?
backbone: {family: vit, patch_size: 2, width: 32, depth: 3, heads: 4, mlp_ratio: 2}
factors:
  shortcuts.count: [0, 2]
  ffn.kernel: [none, 3]
design: one-at-a-time
seeds: {count: 20, vary: [SOURCES]}
data: {name: digits, validation: 0.1}
recipe: {epochs: 25, batch_size: 64, lr: 4e-3, warmup_epochs: 2}
keep: none
"""
VARIED = ("init", "order", "split", "init, order", "init, order, split")


def spreads(sources: str, store: str, folder: Path) -> list[float]:
    """Trains what the store lacks; returns the standard deviation of each row."""
    name = "sources-" + sources.replace(", ", "-")
    file = folder / f"{name}.yaml"
    file.write_text(SPACE.replace("NAME", name).replace("SOURCES", sources))
    study = ablate.run(str(file), store=store)
    return [statistics.stdev(cell.values.values()) for cell in study.results().cells]


def main() -> None:
    store = sys.argv[1]
    folder = Path(store).resolve().parent
    found = {sources: spreads(sources, store, folder) for sources in VARIED}
    print("| a seed decides | row 0 | row 1 | row 2 | all rows |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for sources, rows in found.items():
        pooled = math.sqrt(statistics.fmean(row**2 for row in rows))
        texts = [f"{value:.2f}" for value in (*rows, pooled)]
        print(f"| {sources} | {' | '.join(texts)} |")
    print(machine_text())


if __name__ == "__main__":
    main()
