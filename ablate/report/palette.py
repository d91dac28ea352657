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
# What is neutral, on light and dark pages.
GREY = "#8C8C8C"
# A verdict has the same colour in every figure.
VERDICTS = {
    "helps": "#0072B2",
    "hurts": "#D55E00",
    "no difference": "#009E73",
    "inconclusive": GREY,
}
