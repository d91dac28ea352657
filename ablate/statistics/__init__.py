"""Statistics of repeated trainings: arrays and levels in, numbers out.

It needs numpy and scipy, and nothing else of ablate. Its modules are imported one by
one:

- `noise`: rows with few seeds against a baseline, paired by seed; p values and
  intervals for all rows at once.
- `power`: the difference that a number of seeds finds.
- `seeds_needed`: how many further seeds decide a row.
- `evidence`: proposals of a chain, seed by seed, without an end.
- `error_budget`: the false discovery rate over many studies.
- `verdicts`: Holm's adjustment.
"""

# The probability of a false verdict.
LEVEL = 0.05
