"""The views of a study: each file draws one of them with `show`."""
