"""Results that were trained elsewhere: read, understood, and judged like a study's.

read       tables, folders of runs, databases of trackers   -> Runs
columns    which column is what: metric, seed, factors       -> Columns
judged     rows, verdicts and tables                         -> Judged
"""

from ablate.results.elsewhere.judged import Judged, judge
from ablate.results.elsewhere.read import read_runs

__all__ = ["Judged", "judge", "read_runs"]
