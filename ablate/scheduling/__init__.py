"""Decides which trial comes next: from a plan, from a search, or with further seeds."""
