"""What people ask for, and the wiring: open, inspect, status, release, replay, rebuild, maintain.

complete      say that tables had no rows before their changefeed began
inspect       what lies under a changefeed's prefix, and whether it can be followed
landings      what is landed of topics
maintenance   do what is due for the lake's files
named         which table a person means
opening       settings -> open parts
rebuild       tables built anew from the whole recorded history, aside, and swapped in one commit each
rebuildable   why a table cannot be rebuilt from the files that are there
release       decide held DDL: `cdc-assets release TABLE VERSION --apply "DDL" | --skip | --rebuild | --undo`
replay        quarantined records taken in after a fix
status        how the tables of a lake stand
"""
