"""The Spark session and the gateway to Iceberg's Java API.

cluster    Spark on other machines
failures   exceptions of Spark, Iceberg and Java, as errors of this project
gateway    the JVM and Iceberg's own API in it, for what needs no Spark session
session    Spark for the lake
training   the workload that fills the JVM's class-data archive
"""
