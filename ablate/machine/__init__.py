"""The machine below: caches, file systems, environment variables, threads, provenance."""
