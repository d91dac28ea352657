"""ablate: which part of an architecture earns its cost.

One YAML file declares a space. The harness plans the trials, trains each of them
exactly once, counts its cost, keeps everything in SQL, and prints the table. Data flow
one way:

    search_spaces/*.yaml
       |  space       read, validate, report every mistake  -> Space
       v
       |  plan        a design, or a search that asks       -> Trial, Trial, ...  <---+
       v                                                                              |
       |  trial       build, cost, train                    -> Cost, Epoch, ...       |
       v                                                                              |
       |  execution   Ray | local | inline | simulated     -> Event, Event, ...      |
       v                                                                              |
       |  store       one writer, SQL                       -> records and frames ----+
       v
          report      effects, tables, figures              -> what people read

A search receives its history as values; it never reads the store. `pipeline` connects
the stages, `scheduling` decides which trial comes next, and `results` reads the store. The
names below are the public API. Importing `ablate` loads no heavy package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.api import (
        create_model,
        model_cost,
        open_chain,
        open_study,
        preview,
        run,
        use,
    )
    from ablate.diagnostics.diagnostic import Diagnostic
    from ablate.factors.factor import Factor, OneOf, Parameter, Real, Whole
    from ablate.parts import (
        augmentation,
        backbone,
        command,
        dataset,
        loss,
        metric,
        operator,
        optimizer,
        schedule,
        trainer,
    )
    from ablate.records import Metric
    from ablate.results.elsewhere import judge
    from ablate.results.study import Study

# The module of each public name. It is imported when the name is first used.
_HOMES = {
    "ablate.api": (
        "create_model",
        "model_cost",
        "open_chain",
        "open_study",
        "preview",
        "run",
        "use",
    ),
    "ablate.diagnostics.diagnostic": ("Diagnostic",),
    "ablate.factors.factor": ("Factor", "OneOf", "Parameter", "Real", "Whole"),
    "ablate.parts": (
        "augmentation",
        "backbone",
        "command",
        "dataset",
        "loss",
        "metric",
        "operator",
        "optimizer",
        "schedule",
        "trainer",
    ),
    "ablate.records": ("Metric",),
    "ablate.results.elsewhere": ("judge",),
    "ablate.results.study": ("Study",),
}

__all__ = [
    "Diagnostic",
    "Factor",
    "Metric",
    "OneOf",
    "Parameter",
    "Real",
    "Study",
    "Whole",
    "augmentation",
    "backbone",
    "command",
    "create_model",
    "dataset",
    "judge",
    "loss",
    "metric",
    "model_cost",
    "open_chain",
    "open_study",
    "operator",
    "optimizer",
    "preview",
    "run",
    "schedule",
    "trainer",
    "use",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'ablate' has no attribute '{name}'")
