"""The jars of a Kafka broker.

What a single node in KRaft mode loads of Kafka and of what it needs beside; the rest (Scala, Jackson, Log4j, the
codecs) lies in Spark's own directory of jars.
"""

from __future__ import annotations

from pathlib import Path

from cdc_assets.jvm.jars import Jar, jar_paths
from cdc_assets.jvm.java import spark_home

__all__ = ["JARS", "class_path"]

JARS = (
    Jar(
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.0",
        "04f1a3f9da8155995dd00098d6847cdb9b7af67f4a3028c94031eff017c8e3e5",
    ),
    Jar(
        "com.github.ben-manes.caffeine:caffeine:3.2.0",
        "ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7",
    ),
    Jar(
        "com.google.re2j:re2j:1.8",
        "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7",
    ),
    Jar(
        "com.typesafe.scala-logging:scala-logging_2.13:3.9.5",
        "87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545",
    ),
    Jar(
        "com.yammer.metrics:metrics-core:2.2.0",
        "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c",
    ),
    Jar(
        "commons-validator:commons-validator:1.9.0",
        "c3c14748e2d78db58df88808740711bd643b32c45ffa7b8a739f00fb467cd7d7",
    ),
    Jar(
        "net.sf.jopt-simple:jopt-simple:5.0.4",
        "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28",
    ),
    Jar(
        "org.apache.kafka:kafka-clients:4.1.1",
        "00247122a572c3d3ae4eb60a50192a5811bc0181f51923d13018600f892e821d",
    ),
    Jar(
        "org.apache.kafka:kafka-coordinator-common:4.1.1",
        "2072fc1ce7e0505149bba22a463a5909a899c6235c4fa696f15c21194a7baf60",
    ),
    Jar(
        "org.apache.kafka:kafka-group-coordinator:4.1.1",
        "3eb5a673b69d5992cfa86c5436f39adbf4ce284046a4c999ec6af0a8e31c5589",
    ),
    Jar(
        "org.apache.kafka:kafka-group-coordinator-api:4.1.1",
        "3d1801d2329dcf7d273796a034d61e6c7e0f851f384d0afbdd3a2e6cbd17a968",
    ),
    Jar(
        "org.apache.kafka:kafka-metadata:4.1.1",
        "a689665751415b6456de1ecb013042cb7ba99ac68fd8c3e8bf28e098feb43218",
    ),
    Jar(
        "org.apache.kafka:kafka-raft:4.1.1",
        "4810c93d93d1935dd54de61c5ba130f501c7fe11bc49ccd3ee05ec857818a72a",
    ),
    Jar(
        "org.apache.kafka:kafka-server:4.1.1",
        "9f6aff422855491aad54326eca8d604163d6d3a6507cc48ffe3ce6de73caf79a",
    ),
    Jar(
        "org.apache.kafka:kafka-server-common:4.1.1",
        "207edecd8322cf6c13d76d84addea7fd0ec441dc8d698cf69df43210ccdc0a94",
    ),
    Jar(
        "org.apache.kafka:kafka-share-coordinator:4.1.1",
        "e6bec53428c77bf6579321836d482542a93575f7c08e860a26c9f2c7f6059dac",
    ),
    Jar(
        "org.apache.kafka:kafka-storage:4.1.1",
        "1f85b82853eaec0143efbef7e3a4d4be8929ff83a386326431e0c2d0a557e58c",
    ),
    Jar(
        "org.apache.kafka:kafka-storage-api:4.1.1",
        "8c0a712472185d706c6bf5ae24bf5d84a8e396fd4745c708e6146a415f7fa7f7",
    ),
    Jar(
        "org.apache.kafka:kafka-transaction-coordinator:4.1.1",
        "a261b5730ac9e3205df7af5d45180d851e9d5f729ce1275c67511a6f51f73755",
    ),
    Jar(
        "org.apache.kafka:kafka_2.13:4.1.1",
        "e89428126cc7630a802123ba27aac4442816840b66d60670226feaff65f24fd1",
    ),
    Jar(
        "org.hdrhistogram:HdrHistogram:2.2.2",
        "22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8",
    ),
    Jar(
        "org.pcollections:pcollections:4.0.2",
        "2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef",
    ),
)
"""Kafka 4.1.1, which runs on the Javas that Spark runs on."""

_SPARKS = (
    "jackson-annotations", "jackson-core", "jackson-databind", "jcl-over-slf4j", "log4j-api", "log4j-core",
    "log4j-slf4j2-impl", "lz4-java", "scala-library", "scala-reflect", "slf4j-api", "snappy-java", "zstd-jni",
)  # fmt: skip


def class_path() -> tuple[Path, ...]:
    """Return the jars of a broker. Raises SetupError when they were never fetched."""
    sparks = [jar for name in _SPARKS for jar in sorted((spark_home() / "jars").glob(f"{name}-[0-9]*.jar"))]
    return (*jar_paths(JARS), *sparks)
