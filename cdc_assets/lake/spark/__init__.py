"""The Spark session and the gateway to Iceberg's Java API.

failures   what Spark, Iceberg and Java raise, as errors of this project
gateway    the JVM and Iceberg's own API in it, for what needs no Spark session
session    Spark for the lake
training   what a JVM is led through so that its class-data archive holds what runs need
"""
