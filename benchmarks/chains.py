"""What the decisions of chains are worth: `make bench-chains`.

Chains of 50 proposals. With none that is better: how many chains keep anything. With ten
that are better: how many of the kept ones are not, and what each kept one costs in
trials, beside rules that were not chosen and an oracle that knows the noise.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from machine import machine_text
from made_up import BEYOND, NOISE, NOISES, Noise, Proof, Vector, normal

from ablate.records import MOST_SEEDS, Decision
from ablate.statistics.evidence import GIVE_UP, LEVEL, decide, needed, share_of

PROPOSALS = 50
TRUE = 10
# Of the difference, in standard deviations of a training.
EFFECTS = (1.0, 1.5, 2.0, 3.0)
# The share of the variance that all trainings of a seed have in common.
SHARES = (0.0, 0.5, 0.8)


def losing(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Rare losses in all rows but row 0, with three times the spread."""
    values = normal(generator, shape)
    values[1:] = 3 * NOISE * (1 - generator.exponential(1, values[1:].shape))
    return values


# Beyond the promise: the noise of a proposal has another shape than that of its baseline.
CHANGED: dict[str, Noise] = {
    **{name: noise for name, noise in BEYOND.items() if "lognormal" in name},
    "rare losses in all proposals, with 3 times the standard deviation": losing,
}


@dataclass
class Kept:
    """What became of one chain.

    Attributes:
        right, wrong: kept proposals that are better, and that are not.
        trials: those of the baselines included.
    """

    right: int = 0
    wrong: int = 0
    trials: int = 0


def chain(
    generator: np.random.Generator,
    effect: float,
    noise: Noise,
    *,
    true: int = TRUE,
    share: float = 0.0,
    rule: str = "chosen",
    drift: float = 0.0,
) -> Kept:
    """One chain, as `ablate.trained.chain` decides it, or by another rule.

    Args:
        drift: by how much each proposal is measured better than the one before, in
            standard deviations, although nothing is better.
    """
    better = np.zeros(PROPOSALS, dtype=bool)
    better[generator.permutation(PROPOSALS)[:true]] = True
    shape = (2, MOST_SEEDS)
    common = math.sqrt(share) * normal(generator, shape)[0]
    own = math.sqrt(1 - share)

    def drawn(mean: float, row: int) -> Vector:
        """The results of a row: of the baseline, or of a proposal."""
        values: Vector = noise(generator, shape)[row]
        return mean + common + own * values

    kept, mean = Kept(), 0.0
    base, seeds_of_base = drawn(mean, 0), 0
    earlier: list[Sequence[float]] = []
    rejections: list[int] = []
    for number in range(1, PROPOSALS + 1):
        gain = effect * NOISE if better[number - 1] else 0.0
        proposal = drawn(mean + gain + drift * number * NOISE, 1)
        if rule == "fresh":
            # The baseline is trained anew for each proposal.
            base, seeds_of_base = drawn(mean, 0), 0
            threshold = 1 / _lord(number, rejections)
        else:
            threshold = needed(number, kept.right + kept.wrong)
        differences = [float(each) for each in proposal - base]
        if rule == "greedy":
            seeds, is_kept = 1, differences[0] > 0
        elif rule == "oracle":
            sd = NOISE * own * math.sqrt(2)
            seeds, is_kept = _oracle(differences, sd, threshold)
        else:
            evidence = decide(differences, earlier, threshold)
            seeds = evidence.seeds
            is_kept = evidence.decision is Decision.KEEP
        earlier.append(differences[:seeds])
        kept.trials += seeds + max(0, seeds - seeds_of_base)
        seeds_of_base = max(seeds, seeds_of_base)
        if is_kept:
            kept.right += bool(better[number - 1])
            kept.wrong += not better[number - 1]
            rejections.append(number)
            base, mean, seeds_of_base = proposal, mean + gain, seeds
    return kept


def _oracle(
    differences: Sequence[float], sd: float, threshold: float
) -> tuple[int, bool]:
    """The same levels with known normal noise: the likelihood ratio of two bets."""
    logs = np.zeros(2)
    bets = np.array([1.0, 2.0])
    for number, difference in enumerate(differences, start=1):
        logs += bets * difference / sd - bets**2 / 2
        value = float(np.mean(np.exp(logs)))
        if value >= threshold:
            return number, True
        if value < GIVE_UP:
            return number, False
    return len(differences), False


def _lord(number: int, rejections: Sequence[int]) -> float:
    """The level of LORD++ (Ramdas et al. 2017), with half of the level at the start."""
    level = share_of(number) * LEVEL / 2
    for place, rejection in enumerate(rejections):
        weight = LEVEL / 2 if place == 0 else LEVEL
        level += weight * share_of(number - rejection)
    return level


def chains(
    count: int,
    effect: float,
    noise: Noise = normal,
    *,
    true: int = TRUE,
    share: float = 0.0,
    rule: str = "chosen",
) -> list[Kept]:
    """So many chains, the same ones each time."""
    generator = np.random.default_rng([int(1000 * effect), int(1000 * share)])
    return [
        chain(generator, effect, noise, true=true, share=share, rule=rule)
        for _ in range(count)
    ]


# Of how much each proposal is measured better, in standard deviations of a training.
DRIFTS = (0.005, 0.01, 0.02)


def any_kept(count: int, noise: Noise, share: float = 0.0, drift: float = 0.0) -> float:
    """The share of chains without a better proposal that keep any."""
    generator = np.random.default_rng(1)
    made = [
        chain(generator, 0.0, noise, true=0, share=share, drift=drift)
        for _ in range(count)
    ]
    return sum(each.wrong > 0 for each in made) / count


def false_share(made: Sequence[Kept]) -> float:
    """The mean share of kept proposals that are not better."""
    shares = [each.wrong / max(1, each.wrong + each.right) for each in made]
    return sum(shares) / len(made)


def proofs(count: int) -> Iterator[Proof]:
    """That at most 5 % of the kept proposals are not better, on average."""
    for name, noise in NOISES.items():
        for share in (0.0, 0.8):
            yield Proof(
                "chains without a better proposal that keep one: at most 5 %",
                f"50 proposals, {name}, common share {share:g}",
                any_kept(count, noise, share),
                0.0,
                0.05,
                count,
            )
        yield Proof(
            "kept proposals of a chain that are not better, on average: at most 5 %",
            f"10 of 50 are better by 2 sd, {name}",
            false_share(chains(count, 2.0, noise)),
            0.0,
            0.05,
            count,
        )


def _summary(made: Sequence[Kept]) -> str:
    right = sum(each.right for each in made)
    trials = sum(each.trials for each in made)
    cost = f"{trials / right:.0f}" if right else ""
    any_false = sum(each.wrong > 0 for each in made) / len(made)
    return (
        f"{100 * any_false:.1f} % | {100 * false_share(made):.2f} % |"
        f" {right / len(made):.1f} | {trials / len(made):.0f} | {cost}"
    )


def lines(count: int) -> Iterator[str]:
    """Chains without a better proposal, and with ten, by rule and by noise."""
    yield "| noise | nothing in common | common share 0.8 |"
    yield "| --- | ---: | ---: |"
    for name, noise in {**NOISES, **CHANGED}.items():
        shares = [any_kept(count, noise, share) for share in (0.0, 0.8)]
        yield f"| {name} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |"
    for drift in DRIFTS:
        shares = [any_kept(count, normal, share, drift) for share in (0.0, 0.8)]
        texts = " | ".join(f"{100 * share:.1f} %" for share in shares)
        yield f"| normal, a drift of {drift:g} sd per proposal | {texts} |"
    heading = "any false | false share | better ones kept | trials | trials per one"
    yield ""
    yield f"| difference, common share, rule | {heading} |"
    yield f"| --- |{' ---: |' * 5}"
    for effect in EFFECTS:
        for share in SHARES if effect == 2 else SHARES[:1]:
            is_all = effect == 2 and not share
            rules = (
                ("chosen", "oracle", "fresh", "greedy")
                if is_all
                else ("chosen", "oracle")
            )
            for rule in rules:
                made = chains(count, effect, share=share, rule=rule)
                yield f"| {effect:g} sd, {share:g}, {rule} | {_summary(made)} |"
    yield ""
    yield f"| noise, 2 sd | {heading} |"
    yield f"| --- |{' ---: |' * 5}"
    for name, noise in NOISES.items():
        yield f"| {name} | {_summary(chains(count, 2.0, noise))} |"
    made = chains(count, 0.0, true=0, rule="greedy")
    kept = sum(each.wrong for each in made) / count
    yield ""
    yield (
        "Greedy (one seed, better is kept), without a better proposal: keeps"
        f" {kept:.1f} of {PROPOSALS} on average."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="chains per entry")
    count = parser.parse_args(arguments).count
    for line in lines(count):
        print(line, flush=True)
    print(
        f"\nCommand: `make bench-chains`, {count:,} chains per entry, {machine_text()}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
