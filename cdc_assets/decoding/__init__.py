"""Bytes of splits -> checked and reduced changes of one window, on executors or in the driver.

    read ──▶ decode ──▶ number deliveries ──▶ filter ──▶ validate ──▶ upgrade ──▶ dedupe        `window` draws it

read          bytes -> the changes of each file
deliveries    which rows of a table without key were delivered together
filter        the rows of the window, and those that lie where they cannot belong
validate      the rows that keep what their schema file promises
upgrade       the same rows with the columns of today
cut_off       a last record without terminator: is anything lost with it?
dedupe        one change per key, or how many equal rows enter or leave
alike_keys    keys that are equal by their collation only
dispatchers   writers of one table without key: do they share it?
window        the river from files to a window, and what it told
reports       reports of files added up, and said in a sentence
replay        quarantined records read again after a fix
    kinds/   kinds of tables

What flows is a table as `formats` describes it, and two columns more; after `dedupe` a table without key has COUNT.
"""

__all__ = ["COUNT", "DELIVERY", "FILE"]

FILE = "_cdc_file"
"""int32: position of the file in reading order; of two copies of a change the later file's counts."""
DELIVERY = "_cdc_delivery"
"""int32: which rows of a table without key were delivered together; 0 for all where nobody asks."""
COUNT = "_cdc_count"
"""int64: how many equal rows enter (> 0) or leave (< 0) a table without key."""
