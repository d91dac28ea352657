"""The colours of all figures."""

# Okabe and Ito's colours, which colour-blind readers can distinguish, with the wine red of
# Tol's muted scheme instead of yellow, which is pale on white. Lines also differ in their
# markers.
COLOURS = (
    "#000000",
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#882255",
)
# The part of matplotlib's scale cividis that lines take. Its first colours are too dark for
# a dark page, and its last ones too pale for a white one.
SCALE, SCALE_FROM, SCALE_TO = "cividis", 0.2, 0.85
# What is neutral, on light and dark pages.
GREY = "#8C8C8C"
NO_VERDICT = "no verdict"
# A verdict has the same colour in every figure.
VERDICTS = {
    "helps": "#0072B2",
    "hurts": "#D55E00",
    "no difference": "#009E73",
    "inconclusive": GREY,
    NO_VERDICT: GREY,
}
# Series that have the same colour in every figure.
NAMED = {**VERDICTS, "front": "#0072B2", "dominated": GREY}

# The number of markers that figures have.
MARKERS = 8
# A verdict has the same marker in every figure. Its number here is the position in the
# list of markers.
_MARKERS_OF_VERDICTS = {
    "inconclusive": 0,
    "helps": 1,
    "hurts": 2,
    "no difference": 3,
    NO_VERDICT: 6,
}


def mark_index(name: str, index: int) -> int:
    """Returns the number of the marker of a series, from 0 to `MARKERS` - 1.

    Args:
        name: the name of the series.
        index: the position of the series in its figure.
    """
    return _MARKERS_OF_VERDICTS.get(name, index % MARKERS)
