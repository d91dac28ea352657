"""What a task does with a network: its data, its loss and its evaluation.

Training (`ablate.training`) drives it epoch by epoch and knows none of the three.
"""
