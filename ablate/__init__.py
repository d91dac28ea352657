"""ablate: which part of an architecture earns its cost.

One YAML file declares a space; the harness plans the trials, trains each exactly once,
counts its cost, keeps everything in SQL, and prints the table. Data flows one way:

    search_spaces/*.yaml
          |  space       read, validate, name every mistake       -> Space
          v
          |  plan        a design, or a search that asks          -> Trial, Trial, ...  <-----+
          v                                                                                   | history: values
          |  trial       build, cost, train                       -> Cost, Epoch, ...         | handed over,
          v                                                                                   | never imports
          |  execution   inline | simulated | Ray Tune            -> Event, Event, ...        |
          v                                                                                   |
          |  store       one writer, SQL                          -> records and frames ------+
          v
             report      effects, tables                          -> what people read

`pipeline` connects the stages, `queue` hands out jobs, `study` reads results. The names
below are the public face; importing `ablate` loads none of the heavy ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.api import create_model, model_cost, open_study, preview, run
    from ablate.study import Study

__all__ = ["Study", "create_model", "model_cost", "open_study", "preview", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ablate' has no attribute '{name}'")
    from importlib import import_module

    return getattr(
        import_module("ablate.study" if name == "Study" else "ablate.api"), name
    )
