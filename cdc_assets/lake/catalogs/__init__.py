"""The Iceberg catalog, read without a JVM: a module for each type of catalog, with the same names.

catalog      the catalog as PyIceberg opens it; which module is whose
remembered   what answers about tables told, so that it is not asked for again
sql          in a SQL database
rest         behind Iceberg's REST interface
glue         AWS Glue
hive         a Hive metastore
"""
