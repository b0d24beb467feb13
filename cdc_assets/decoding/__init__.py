"""Bytes of splits -> checked and reduced changes of one window, on executors or in the driver.

    read ──▶ decode ──▶ number deliveries ──▶ filter ──▶ validate ──▶ upgrade ──▶ reduce        `window` draws it

window        the river from files to a window, and what it reports
split         what flows in it: read, decoded, the rows that are due, the columns of today, rows by their keys,
              what a kind of table does with them
validate      the rows that keep what their schema file promises

Where there is something for them:

patches       changes that have some columns only
first_images  keys whose first change needs a row from before the window: where that is missing, others are
moved         such changes of rows under a new key
upgrade       rows from before a DDL that the window's table took ahead
states        states of rows, which follow from the changes of their keys
deliveries    which rows of a table without key came twice
own_columns   columns that a table has beside those of its source
keyed_rows    rows of given keys, and of those of quarantined records after a fix
position_sort  changes in the order of their positions, however many there are

What flows is a table as `formats` describes it, and up to two columns more; after `reduce` some kinds have COUNT, and
changes under a new key BASE (`moved`).
"""

from cdc_assets.model.layout import PLACE

__all__ = ["COUNT", "DELIVERY", "FILE", "PLACE"]

FILE = "_cdc_file"
"""int32: position of the file in reading order; of two copies of a change the later file's counts."""
DELIVERY = "_cdc_delivery"
"""int32: which rows were delivered together, for kinds of tables that ask."""
COUNT = "_cdc_count"
"""int64: how many equal rows enter (> 0) or leave (< 0) a table without key."""
