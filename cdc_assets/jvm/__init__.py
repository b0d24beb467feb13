"""Java, the jars of Spark and Iceberg, and the class-data archive that speeds up a start.

class_data   the JVM's class-data archive, which is made once
jars         the jars that Spark loads beside its own: fetched once, one of them compiled
java         the Java and the Python that a Spark session starts with
"""
