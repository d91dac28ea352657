"""Trains the small twins of the papers' tables and writes their tables to
docs/results, or tries them briefly.

    make twins                          every twin as its file says, on this machine's cores
    make twins GPUS=1 EPOCHS=60         on one GPU shared by four trials, for 60 epochs
    make twins BATCHES=2                two batches of each trial, nothing written

The data are data/cifar10 (torchvision's files) or data/cifar10.npz (Keras' layout), or
digit scenes, which need no files.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from ablate import pipeline, space
from ablate.machine import provenance
from ablate.report.matplotlib_charts import save_chart
from ablate.report.table import render
from ablate.results.study import Study
from ablate.results.study_charts import chart

ROOT = Path(__file__).parents[1]
TWINS = (
    "augvit/table3-small",
    "augvit/table4-small",
    "augvit/table5-small",
    "augvit/table6-small",
    "augvit/figure3-small",
    "antioversmoothing/figure1-small",
    "antioversmoothing/table1-small",
    "patchdiv/table2-small",
    "patchdiv/figure2-small",
    "mabvit/s16-18-small",
    "mabvit/variants-small",
    "iffn/table2-small",
    "iffn/table6-small",
    "iffn/table7-small",
    "iffn/table8-small",
)


def document(name: str, gpus: float, epochs: int | None, batches: int | None) -> str:
    """The YAML text of a twin, changed as the options say."""
    said: dict[str, Any] = yaml.safe_load(
        (ROOT / "search_spaces" / f"{name}.yaml").read_text(encoding="utf-8")
    )
    said["name"] = name
    if gpus:
        said["resources"] = {"cpus": 2, "gpus": 0.25}
    if epochs:
        said["recipe"] |= {"epochs": epochs, "warmup_epochs": min(5, epochs // 10)}
    if batches:
        images = batches * said["recipe"]["batch_size"]
        data = said["data"]
        name_of_data = data if isinstance(data, str) else data["name"]
        said |= {
            "seeds": 1,
            "data": {
                "name": name_of_data,
                "train_images": images,
                "test_images": images,
            },
        }
        said["recipe"] |= {"epochs": 1, "warmup_epochs": 0}
    return yaml.safe_dump(said, sort_keys=False, allow_unicode=True)


def train(name: str, text: str, options: pipeline.Options) -> Study:
    """Trains a twin, or goes on with it.

    Raises RuntimeError where a trial failed.
    """
    declared = space.load(text, f"search_spaces/{name}.yaml")
    outcome = pipeline.run(declared, f"search_spaces/{name}.yaml", options)
    if outcome.failed or outcome.unfinished:
        raise RuntimeError(
            f"{name}: {outcome.failed} trials failed, {outcome.unfinished} unfinished:"
            f" ablate status {name}"
        )
    return Study(name, options.url)


def tables(study: Study) -> str:
    """The table of a twin, with the paper's values where it has them, and its verdicts."""
    published = bool(study.declared().claim.published)
    parts = [study.results_table(published=published), study.effects_table()]
    return "\n".join(render(part, "md") for part in parts)


def written(name: str, study: Study, text: str, figure: str) -> str:
    """The document of a result: the tables, and on what and from what it was made."""
    made = provenance.collect()
    said = yaml.safe_load(text)
    recipe = said["recipe"]
    where = (
        f"{made.cores} cores of {made.cpu}, {made.gpus or 'no GPU'}, torch"
        f" {made.torch}, ablate {made.ablate}"
    )
    today = datetime.date.today().isoformat()
    return (
        f"# {name}\n\n{tables(study)}\n"
        f"![Differences from row 0 with their intervals](../figures/{figure})\n\n"
        f"`make twins TWINS={name}`: {recipe['epochs']} epochs on"
        f" {images_of(said['data'])}. {where}, {today}.\n"
    )


def images_of(data: str | dict[str, Any]) -> str:
    """The images of a twin in words."""
    if isinstance(data, str):
        return f"all images of {data}"
    return f"{data.get('train_images', 'all')} images of {data['name']}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", default=TWINS, help="twins, as augvit/table3-small"
    )
    parser.add_argument("--gpus", type=float, default=0)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--executor", default="ray", choices=("ray", "inline"))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) if chosen.batches else chosen.runs
        for name in chosen.names:
            print(name, file=sys.stderr, flush=True)
            text = document(name, chosen.gpus, chosen.epochs, chosen.batches)
            study = train(name, text, pipeline.Options(runs, executor=chosen.executor))
            if chosen.batches:
                print(tables(study))
                continue
            docs = ROOT / "docs"
            figure = f"{name.replace('/', '-')}-effects.svg"
            save_chart(docs / "figures" / figure, chart(study, "effects"))
            file = docs / "results" / f"{name.replace('/', '-')}.md"
            file.write_text(written(name, study, text, figure), encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
