"""TiCDC's Avro messages: one row a message, its schema in a registry. The only room of fastavro.

messages   what messages speak of, the changes of a table, the schemas that rows show
alike      messages of one registered schema, read side by side
columns    records of one schema, a field at a time
record     a record's schema -> the schema of a table, as far as it goes
wire       Confluent's and Glue's framing -> records; names as Avro has them
"""
