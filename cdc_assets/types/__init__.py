"""Type tables and value rules: what a column of the source becomes in the lake, and how its values are read.

families        groups of similar types
mysql_types     one rule for each MySQL type: Arrow, Spark and Iceberg types, what is kept
mysql_values    texts -> values
connect_types   one rule for each schema of Kafka Connect and Debezium
postgres_types  PostgreSQL's types as Debezium writes them
addresses       MariaDB's UUID, INET4 and INET6 as texts and bytes
ydb_types       one rule for each type of YQL
rules           what a rule is made of
printed_values  forms by which values are equal that connectors print in several ways
collations      the normal form by which keys are equal
masks           what is left of values that are masked
frames          columns of polars frames by their names
key_digests     keys of rows that are forgotten, as HMACs; keys of the rows of a record that is set aside
conversions     values when a column's type changes
fidelity        what the lake keeps of each column
zones           time zones by name, and whether two are the same
"""
