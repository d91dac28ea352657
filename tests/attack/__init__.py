"""Malformed input for the command line: cases as data, and a runner that forks a
process for each.
"""
