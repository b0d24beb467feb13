"""The Iceberg catalog, read without a JVM."""
