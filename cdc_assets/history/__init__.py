"""What every table was called and looked like, when; policies and releases decide what the feed leaves open.

completeness   which tables lack rows
exchanges      EXCHANGE PARTITION: one DDL, two lives that change rows
history        schema files -> the life of every table
imports        tables that a dump brings
lives          the tables while schema files are played
policies       what people decided about DDL, ahead by kind or about a single one
recovery       which table RECOVER and FLASHBACK TABLE bring back
releases       the commands with which a person decides about a single DDL
renames        several renames of one version -> who is called what afterwards
strays         when rows of a name can have been written with which columns
"""
