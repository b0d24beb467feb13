"""Names and schemas of every table over time; policies and releases decide what the feed leaves open.

history        schema files -> the life of every table; EXCHANGE PARTITION, which concerns two
lives          the tables while schema files are played
policies       what people decided about DDL, ahead by kind or about a single one, and the commands for it
recovery       which table RECOVER and FLASHBACK TABLE restore, and what shows that a table kept its name
renames        several renames of one version -> the names afterwards
shadows        tables whose rows a connector leaves out, and the tables that they replace
strays         when rows of a name can have been written with which columns
"""
