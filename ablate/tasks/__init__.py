"""What networks are trained for.

Each file of this package is one task: the metrics that training measures. Only the file
of a task knows their names.
"""
