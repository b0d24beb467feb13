"""Tables that lack rows from before their feed, or rows that no change log has.

history               which tables lack rows
pipeline              incomplete tables, recorded in the lake
lake                  which rows tables lack
preflight             rules about tables that lack rows from before the feed
operations            say that tables had no rows before their changefeed began
"""
