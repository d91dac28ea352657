"""What the names of runs say: settings and seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ablate.errors import AblateError, shortened
from ablate.results.elsewhere.runs import Curve
from ablate.text.advice import option

# A name that ends in a number, such as `rms-seed3`, `rms_s3` and `rms-3`.
NUMBERED = re.compile(
    r"(?P<name>.+?)[-_./ ](?P<mark>seed|s|run|r)?[-_=]?(?P<seed>\d+)", re.IGNORECASE
)
# A part of a name such as `norm=rms`, and a seed such as `seed3` or `seed=3`.
PAIR = re.compile(
    r"(?:^|[/,;_ ])([A-Za-z][A-Za-z0-9.]*)=([^/,; ]+?)(?=$|[/,; ]|_[A-Za-z0-9.]+=|[-_]seed)"
)
SEED = re.compile(r"(?:^|[/,;_ -])seed[_=-]?(?P<seed>\d+)", re.IGNORECASE)


def named(curves: Sequence[Curve], names: str) -> None:
    """Adds to runs what the names of their folders say, by their form.

    Raises:
        AblateError: a name has another form.
    """
    pattern = pattern_of(names)
    for curve in curves:
        match = pattern.search(curve.name)
        if match is None:
            raise AblateError(
                f"{option('names')} {names}: the folder {shortened(curve.name)} has"
                " another form"
            )
        curve.settings |= match.groupdict()


def named_alike(curves: Sequence[Curve]) -> str:
    """Adds what names such as `norm=rms/seed3` and `rms-3` say. Returns a note on it."""
    added = False
    for curve in curves:
        pairs = dict(PAIR.findall(curve.name))
        seed = SEED.search(curve.name)
        if seed is not None:
            pairs.setdefault("seed", seed["seed"])
        new = {
            name: level for name, level in pairs.items() if name not in curve.settings
        }
        if set(new) != {"seed"} or curve.settings:
            curve.settings |= new
            added = added or bool(new)
    if any(curve.settings for curve in curves):
        if not added:
            return ""
        return (
            "Some settings are from the names of the folders;"
            f" {option('names')} says otherwise."
        )
    matches = [NUMBERED.fullmatch(_last_part(curve.name)) for curve in curves]
    numbered = [match for match in matches if match is not None]
    are_seeds = len(numbered) == len(matches) and _are_seeds(numbered)
    for curve, match in zip(curves, matches, strict=True):
        if are_seeds and match is not None:
            curve.settings |= {"name": match["name"], "seed": match["seed"]}
        else:
            curve.settings["name"] = _last_part(curve.name)
    what = "Names and seeds" if are_seeds else "Names"
    return (
        f"{what} are from the names of the folders; {option('names')} says otherwise."
    )


def _are_seeds(numbered: Sequence[re.Match[str]]) -> bool:
    """Whether the numbers at the ends of names are seeds: 0 to n, 1 to n, or marked."""
    if all(match["mark"] for match in numbered):
        return True
    by_name: dict[str, list[int]] = {}
    for match in numbered:
        by_name.setdefault(match["name"], []).append(int(match["seed"]))
    return all(
        sorted(seeds) in (list(range(len(seeds))), list(range(1, len(seeds) + 1)))
        for seeds in by_name.values()
    )


def _last_part(name: str) -> str:
    """Returns a name without the part that Lightning adds."""
    parts = [
        part for part in Path(name).parts if not re.fullmatch(r"version_\d+", part)
    ]
    return "/".join(parts) if parts else name


def pattern_of(names: str) -> re.Pattern[str]:
    """Returns the expression of a form such as `{norm}-{seed}`."""
    parts = re.split(r"\{([A-Za-z_]\w*)\}", names)
    fields = parts[1::2]
    if not fields or len(set(fields)) < len(fields):
        raise AblateError(
            f"{option('names')} {names}: needs different names in braces, as in '{{norm}}-{{seed}}'"
        )
    made = "".join(
        f"(?P<{part}>[^/]+?)" if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
    return re.compile(rf"(?:^|/){made}(?:$|/)")
