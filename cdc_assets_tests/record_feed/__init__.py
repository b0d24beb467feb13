"""A feed of records in memory: a kind of source and a wire format of the tests' own, a small folder each could be.

Plugged in by the tables of plugs alone, it goes through the whole house: what it needs to know is `sources.Source`,
`sources.SourceOptions` and `formats.Wire`.

    source    the feed: schema files, records and a fence, held in this process
    options   how a split was written
    decode    splits -> changes: a line `["I", 101, 1, "a"]` is op, commit-ts and the values in table order
"""
