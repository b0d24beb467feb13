"""Topics on their way: ranges of offsets in, rows and events of the landing table out.

opening           settings -> a feed with its landing
landing           look at the ends, read up to them, commit once: read here, or by executors where there is much
  read
tasks             what one task of executors reads
partition_reader  what is to be read; messages -> rows, marks, and what else they say, of partitions by themselves
  place
batch             the same of all partitions together: what of it is new, and its commit
order             messages of protocols by offset that are not landed: their order, and which had come before
groups            rows of MySQL's log that share a position, as those of compressed transactions do
keyless           rows without key of several partitions: which came in another one before
placement         their positions, and what of them is landed
  commit
files             columns of the landing table; rows are sorted, cut into row groups, and written as these fill; events
iceberg           the landing table in the lake
  afterwards
decisions         what people decide about messages that are bad, lost, or to come
retention         which rows are kept, and why
maintenance       rows expire, small files are put together
"""
