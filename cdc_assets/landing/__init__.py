"""Topics on their way: ranges of offsets in, rows and events of the landing table out.

landing      look at the ends, read up to them, commit once
losses       what is to be read of each partition, and what of it is gone
taking       ranges -> a reading, with commits on the way: read here, or by executors where they are large
shares       what one task of executors reads
taken        the same as values that travel
ahead        batches of a log, read while those before them are landed
sorting      batches of messages -> rows, marks, and what else they say, of partitions by themselves
reading      the same of all partitions together: what of it is new
claims       what lies in files beside the topic -> the messages that name it
ordered      the same of protocols by offset: their positions, and what of them is landed
order        their order, and which of them had come before
kept         what of these is read and not landed: how far it goes, what can be landed
first_rows   what rows show of their tables, without what is known of them
tables       what of that is new: where tables begin, their first columns, what came back after a DROP
snapshots    which snapshot of a connector rows are of
dialects     which kind of database the messages of a topic and a table are from
shapes       columns that rows had before, and those of the newest
late         rows that came when their table may have been applied beyond them
commits      what was read -> one commit, guarded by offsets
rows         the columns of the landing table, sorted and cut into row groups
spool        row groups are written as they fill, while messages are read on
events       events and the state <-> rows of the landing table
decisions    what people decide about messages that are bad, lost, or to come
maintenance  rows expire, small files are put together
store        what a place for a landing can do
files        its files of rows, written wherever a task runs
iceberg      the landing table in the lake
opening      settings -> a feed with its landing
"""
