"""A window's changes on their way: decoded and written as Parquet by tasks, taken in by one commit."""
