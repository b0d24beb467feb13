"""TiCDC's Avro messages: one row a message, its schema in a registry.

messages   what messages speak of, the changes of a table, the schemas that rows show
record     a record's schema -> the schema of a table, as far as it goes; names as Avro has them
"""
