"""Real servers for the lake's tests, each from a package of a registry, on 127.0.0.1 only.

object_store   S3 with signatures and grants: SeaweedFS
rest_catalog   Iceberg's reference REST catalog: a Java main over its own test classes
counted        a way to one of them that counts what is asked, and may lose answers
gcs            Google Cloud Storage: fake-gcs-server
azure          Azure Blob Storage: Azurite
glue           AWS Glue's API: moto
hive_metastore   Hive's metastore: a Java main over its own handler, with Derby
lakes          lakes in those stores, by each type of catalog
spark_cluster  a standalone Spark cluster: master and workers
schema_registry  a schema registry with Confluent's API behind TLS: franz-go's, built by a Go toolchain
"""
