"""The audit of the papers' printed costs, for `ablate verify-costs` alone.

It counts every parameter and FLOP that the five papers print, in the ways in which
papers count, and says which way gives each printed number.
"""
