"""What the papers' authors published as code, written again slowly in float64 from the
equations.

Each module but the tests holds pure functions from tensors and weights to tensors, in
loops over images, tokens and heads. None imports `ablate`. Weights are named as in the
authors' networks.
"""
