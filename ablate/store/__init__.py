"""The store of all results: one database, one writer, many readers."""
