"""What is known: one database, one writer, many readers. SQL is the only truth."""
