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
       |  execution   inline | simulated | Ray Tune         -> Event, Event, ...      |
       v                                                                              |
       |  store       one writer, SQL                       -> records and frames ----+
       v
          report      effects, tables, figures              -> what people read

A search receives its history as values; it never reads the store. `pipeline` connects
the stages, `scheduling` decides which trial comes next, and `study` reads results. The
names below are the public API. Importing `ablate` loads no heavy package.
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
