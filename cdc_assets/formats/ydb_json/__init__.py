"""YDB's changefeeds: JSON, Debezium's flavour, that of DynamoDB's streams.

messages   what records speak of, the schemas that they state, the changes of a table
"""
