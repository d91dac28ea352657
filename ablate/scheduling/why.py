"""Why trials have no result yet: which part of their identity is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ablate.machine.provenance import versions
from ablate.own import registry
from ablate.records import Known, Plan, Status, Trial, level_text
from ablate.records.trial import VARIED
from ablate.store.reader import Reader

# With more stored trainings than this, the latest ones are searched.
MOST_STORED = 5_000
# What the nearest stored training differs in, as far as a line shows it.
MOST_SHOWN = 4
CODE = "code "


@dataclass(frozen=True)
class _Stored:
    """A stored training, with all seeds that it was trained with.

    `failed` says that it failed with each of them.
    """

    parts: Mapping[str, str]
    seeds: frozenset[int]
    failed: bool = False


def why_new(
    plan: Plan,
    to_train: Iterable[Trial],
    known: Mapping[str, Known],
    reader: Reader | None,
) -> list[str]:
    """Says for each trial to train which part of its identity is new, in lines.

    A trial is compared with the stored one that differs least.

    Args:
        known: what the store knows of trials, by hash.
    """
    left = {trial.hash for trial in to_train}
    stored = _stored(reader) if reader is not None else []
    if not left:
        return []
    if not stored:
        return ["The store has no trained trial, so every trial is new."]
    files = reader.identities.files() if reader is not None else {}
    rows: dict[str, list[int]] = defaultdict(list)
    trials: dict[str, int] = defaultdict(int)
    for cell in plan.cells:
        new = []
        for trial in cell.all_trials:
            if trial.hash not in left:
                continue
            if trial.hash not in known:
                new.append(trial)
                continue
            reason = f"{known[trial.hash].status} before"
            rows[reason] += [cell.index] * (cell.index not in rows[reason])
            trials[reason] += 1
        if new:
            reason = _reason(new, stored, files)
            rows[reason].append(cell.index)
            trials[reason] += len(new)
    lines = [
        f"{_rows(numbers)} ({_trials(trials[reason])}): {reason}"
        for reason, numbers in rows.items()
    ]
    if any(" changed" in reason for reason in rows):
        lines.append(
            "(A part with revision=1 keeps its results over changes of its files, until"
            " you raise the revision.)"
        )
    return lines


def upgrades(reader: Reader) -> list[str]:
    """Says which packages have changed since the last run; no line if none has.

    They are no part of a trial's identity.
    """
    before = reader.identities.last_versions()
    changed = [
        f"{name} {before[name]} → {now}"
        for name, now in versions().items()
        if name in before and before[name] != now
    ]
    if not changed:
        return []
    return [
        f"Since the last run: {', '.join(changed)}. An upgrade retrains nothing; to"
        " compare, type: ablate reproduce TRIAL"
    ]


def _reason(
    new: list[Trial], stored: list[_Stored], files: Mapping[str, Mapping[str, str]]
) -> str:
    parts = parts_of(new[0])
    nearest = min(
        stored,
        key=lambda other: (len(_differing(parts, other.parts)), other.failed),
    )
    names = _differing(parts, nearest.parts)
    if not names:
        seeds = [str(trial.seed) for trial in new if trial.seed not in nearest.seeds]
        if seeds:
            return f"seed {', '.join(seeds)} is new"
        return "a correction of ablate made the stored result invalid"
    changes = [
        _change(name, parts.get(name), nearest.parts.get(name), files)
        for name in names[:MOST_SHOWN]
    ]
    if len(names) > MOST_SHOWN:
        changes.append(f"{len(names) - MOST_SHOWN} more")
    before = " (it failed before)" if nearest.failed else ""
    return "; ".join(changes) + before


def parts_of(trial: Trial) -> dict[str, str]:
    """The parts of a trial's identity by name, without its seed."""
    architecture = trial.architecture
    return _parts(
        backbone=architecture.backbone,
        settings=architecture.settings,
        code={**architecture.code, **trial.code},
        recipe=trial.canonical_recipe,
        data=trial.data.canonical(),
        others={
            "data.classes": architecture.classes or "",
            "head": architecture.head,
            "pretrained": trial.start.identity if trial.start else "",
            "teacher": trial.teacher.identity if trial.teacher else "",
            "seeds.vary": "" if trial.vary == VARIED else ", ".join(trial.vary),
        },
    )


def _parts(
    *,
    backbone: str,
    settings: Mapping[str, object],
    code: Mapping[str, str],
    recipe: Mapping[str, object],
    data: Mapping[str, object],
    others: Mapping[str, object],
) -> dict[str, str]:
    parts = {"backbone": backbone}
    parts |= {name: _text(level) for name, level in settings.items()}
    parts |= {f"recipe.{name}": _text(level) for name, level in recipe.items()}
    # The seed of the split is among the seeds.
    parts |= {f"data.{name}": _text(v) for name, v in data.items() if name != "split"}
    parts |= {f"{CODE}{name}": identity for name, identity in code.items()}
    return parts | {name: str(value) for name, value in others.items() if value}


def _text(value: object) -> str:
    if isinstance(value, bool | int | float | str):
        return level_text(value)
    return str(value)


def _stored(reader: Reader) -> list[_Stored]:
    """The stored trainings, the latest first."""
    seeds: dict[tuple[tuple[str, str], ...], set[int]] = {}
    trained = set[tuple[tuple[str, str], ...]]()
    for row in reader.identities.trained(MOST_STORED):
        parts = _parts(
            backbone=row.backbone,
            settings=row.settings,
            code=row.code,
            recipe=row.recipe,
            data=row.data,
            others={
                "data.classes": row.classes or "",
                "head": row.head,
                "pretrained": row.start or "",
                "teacher": row.teacher or "",
                "seeds.vary": ", ".join(row.vary or ()),
            },
        )
        key = tuple(sorted(parts.items()))
        seeds.setdefault(key, set()).add(row.seed)
        if row.status != Status.FAILED:
            trained.add(key)
    return [
        _Stored(parts=dict(key), seeds=frozenset(of), failed=key not in trained)
        for key, of in seeds.items()
    ]


def _differing(parts: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    names = dict.fromkeys((*parts, *others))
    return [name for name in names if parts.get(name) != others.get(name)]


def _change(
    name: str,
    now: str | None,
    before: str | None,
    files: Mapping[str, Mapping[str, str]],
) -> str:
    if name.startswith(CODE):
        return _code_change(name.removeprefix(CODE), now, before, files)
    if before is None:
        return f"{name} is {now}, and was not set"
    if now is None:
        return f"{name} is not set, and was {before}"
    return f"{name} is {now}, and was {before}"


def _code_change(
    name: str,
    now: str | None,
    before: str | None,
    files: Mapping[str, Mapping[str, str]],
) -> str:
    """What has changed in the files of a user's part."""
    if now is None:
        return f"without {name}"
    if before is None:
        return f"{name} is new"
    current = registry.texts_of_parts().get(name)
    if current is None or before not in files:
        return f"{name}: its files or its revision changed ({before} before, {now} now)"
    old, new = files[before], current.files
    changed = [file for file in new if file in old and new[file] != old[file]]
    groups = (
        (changed, "changed"),
        ([file for file in new if file not in old], "new"),
        ([file for file in old if file not in new], "gone"),
    )
    texts = [f"{', '.join(group)} {what}" for group, what in groups if group]
    said = f"{name}: {'; '.join(texts) or 'its files changed'}"
    if changed and current.why_texts_count:
        return (
            f"{said} (comments and docstrings count, because {current.why_texts_count})"
        )
    return said


def _rows(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"row {shown}" if len(numbers) == 1 else f"rows {shown}"


def _trials(number: int) -> str:
    return "1 trial" if number == 1 else f"{number} trials"
