"""Debezium's envelope as JSON, as TiCDC writes it.

messages   what messages speak of, the changes of a table, the schemas that rows show
values     the values of a column as TiCDC puts them into Debezium's types -> cells
"""
