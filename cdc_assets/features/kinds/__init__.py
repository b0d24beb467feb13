"""Kinds of tables: how changes are reduced, and how they are written; planned beside their mirrors.

    decoding        the table of kinds: which kind a table is of
    planning        histories of the history tables that stand beside those of the source
    lake            the table of writers: staged changes -> rows of a table
    lake_checks     whether states overlap, and what history tables lead to is the mirror
    keyed/          one row per key: the last change of a key counts
    multiset/       a table without key: how many equal rows enter or leave
    log/            a table beside one of these: every change
    scd2/           a table beside one with a key: every state

A kind is a folder with two files: `decoding` says as its KIND what the kind is (`TableKind`) and reduces its changes,
`lake` writes them.
"""
