"""Words that tools use for the same thing: steps, seeds, and names of files.

`ablate judge` and `reads=` of commands use the same lists.
"""

from __future__ import annotations

import re

# Columns that number the epochs or steps of a run, the preferred one first.
STEPS = ("epoch", "step", "global_step", "trainer_global_step", "iteration", "iter")
_SEED = re.compile(
    r"(.*[._/ -])?(random_?|rng_?)?"
    r"(seed(_everything)?|random_state|fold|rep|replicate|repeat)s?",
    re.IGNORECASE,
)
# Columns that number the items of a test set, not runs.
ITEMS = re.compile(
    r"(doc|item|example|question|sample|instance|document|image|row)(_?(id|idx|index))?"
    r"|(test_?)?(id|idx|index)",
    re.IGNORECASE,
)
# Files in which tools keep the metrics of one run, wherever they are.
RUN_FILES = (
    *("*tfevents*", "metrics.csv", "summary.csv", "results.csv", "progress.csv"),
    *("log.txt", "metrics.json", "trainer_state.json", "all_results.json"),
    *("eval_results.json", "train_results.json", "test_results.json"),
)
# Files of metrics of any name; only if a folder has none of the others. Several of one
# kind in a folder are several runs.
OTHER_FILES = ("*.jsonl", "*.ndjson", "*.csv", "*.json")
# Files that hold what a run declares. Several of them may say different things.
SETTING_FILES = (
    *("hparams.yaml", "args.yaml", "config.yaml", "config.json", "args.json"),
    "hparams.json",
)
# Folders of a run that are parts of it: of Keras, and others.
PARTS = ("train", "training", "validation", "val", "valid", "test", "eval")
# What `add_hparams` of TensorBoard writes below a run, named by the time.
HPARAMS = re.compile(r"\d{9,}(\.\d+)?")
# What a trainer keeps below a run to go on from, with the metrics until then.
CHECKPOINT = re.compile(r"(checkpoint|ckpt)s?[-_]?\d*", re.IGNORECASE)
# Answers to single items, as lm-eval writes them.
ITEM_FILES = ("samples_*", "*predictions.jsonl", "*generations.jsonl")


def step_word(name: object) -> str:
    """Returns which of `STEPS` the name of a column is; empty if it is none."""
    plain = re.sub(r"\W+", "_", str(name)).strip("_").lower()
    return plain if plain in STEPS else ""


def is_seed(name: object) -> bool:
    """Whether a column has seeds, or what pairs runs as seeds do."""
    return _SEED.fullmatch(str(name).strip()) is not None


def is_item(name: object) -> bool:
    """Whether a column may number the items of a test set."""
    return ITEMS.fullmatch(str(name).strip()) is not None
