"""Topics on their way: ranges of offsets in, rows and events of the landing table out.

opening           settings -> a feed with its landing
landing           look at the ends, read up to them, commit once: read here, or by executors where there is much
  read
ranges            what is to be read of each partition, and what of it is gone; its messages in batches
tasks             what one task of executors reads
partition_reader  messages -> rows, marks, and what else they say and show, of partitions by themselves
delivery_starts   where a sender of theirs began anew, by which equal rows of tables without key are told apart
  place
batch             the same of all partitions together: what of it is new, and its commit
backlog           messages of protocols by offset: what is read and not landed
order             their order, and which of them had come before
placement         their positions, and what of them is landed
  commit
files             columns of the landing table; rows are sorted, cut into row groups, and written as these fill
events            events and the state <-> rows of the landing table
iceberg           the landing table in the lake
  afterwards
decisions         what people decide about messages that are bad, lost, or to come
maintenance       rows expire, small files are put together
"""
