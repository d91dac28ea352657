"""Turns results into tables and statements.

Its modules are imported one by one: a table of states needs no statistics.
"""
