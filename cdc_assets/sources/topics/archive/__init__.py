"""Archived topics in any store: files of messages, by layout.

reader           the log that the files are: ends, and ranges of offsets
layouts          where a file's messages belong, and how they are written in it
records          one JSON object a line, with its topic, partition and offset
confluent        Confluent's S3 sink, with Avro files of raw messages
aiven            Aiven's S3 sink
named            the common part of the two: names have the first offset
"""
