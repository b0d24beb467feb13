"""Java, the jars of Spark and Iceberg, and the class-data archive that makes a start faster."""
