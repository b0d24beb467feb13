"""Tables compared with their source, row by row, and repaired.

operations            tables of the lake compared with their source
operations_rows       two sides of a table compared row by row
operations_ranges     a large table in ranges of its key, and the rows of both sides
operations_losses     which loss makes a value of the lake equal to that of its source
operations_repair     the source's rows written into tables that differ from it
operations_choice     which rows of a table are compared
operations_request    what is asked for, with its command, job and schedule
report                comparisons of tables with their source
defs                  the check of each table that is compared
"""
