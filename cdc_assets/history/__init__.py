"""Names and schemas of every table over time; policies and releases decide what the feed leaves open.

exchanges      EXCHANGE PARTITION: one DDL, two lives that exchange rows
history        schema files -> the life of every table
later_signs    what shows that a table kept its name
lives          the tables while schema files are played
policies       what people decided about DDL, ahead by kind or about a single one
recovery       which table RECOVER and FLASHBACK TABLE restore
releases       the commands with which a person decides about a single DDL
renames        several renames of one version -> the names afterwards
shadows        tables whose rows a connector leaves out, and the tables that they replace
strays         when rows of a name can have been written with which columns
"""
