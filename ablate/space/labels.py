"""What factors and levels are called in tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ablate.errors import unknown
from ablate.records import Level, level_text
from ablate.space.context import Context

# The most characters of a label.
LONGEST = 80


def read_labels(
    context: Context, levels: Mapping[str, tuple[Level, ...]]
) -> dict[str, str]:
    """The labels by factor, or by factor and level as `ffn.kernel:none`.

    Notes labels of nothing, and labels that do not fit on one line.
    """
    names: list[str] = []
    for factor, factor_levels in levels.items():
        names.append(factor)
        names += [f"{factor}:{level_text(level)}" for level in factor_levels]
    for name, label in context.form.labels.items():
        if name not in names:
            context.wrong(("labels", name), partial(unknown, "label", name, names))
        elif not label.strip() or not label.isprintable() or len(label) > LONGEST:
            context.wrong(
                ("labels", name),
                f"labels: {name}: a label is one line with 1 to {LONGEST} characters",
            )
    columns = [context.form.labels.get(factor, factor) for factor in levels]
    for factor in levels:
        called = context.form.labels.get(factor, factor)
        if columns.count(called) > 1:
            context.wrong(
                ("labels",), f"labels: two factors are called {called!r}; rename one"
            )
            break
    return dict(context.form.labels)
