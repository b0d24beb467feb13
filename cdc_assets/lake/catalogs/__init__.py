"""The Iceberg catalog, read without a JVM: a module for each type of catalog, with the same names.

catalog      the catalog as PyIceberg opens it, and the module for its type
remembered   cached answers about tables: metadata, and access to the files
sql          in a SQL database
absent       in a file that is not there yet
rest         Iceberg's REST catalog
glue         AWS Glue
hive         a Hive metastore
"""
