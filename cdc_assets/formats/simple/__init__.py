"""TiCDC's Simple protocol, as JSON and as Avro of a fixed schema: one row, DDL, schema or mark each.

messages    batches of messages -> what they speak of, schemas, and changes
rows        parsed rows -> cells
avro        the Avro encoding, read into what the JSON one says
schema      `tableSchema` -> the schema of a table
"""
