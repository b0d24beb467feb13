"""Cuts: one state of all tables of a changefeed at one position, kept by tags.

planning              where a cut is made, and which tables are not there
pipeline              decided cuts, made or withdrawn at the end of a run
lake                  the cuts of a changefeed: their list and their tags
operations            one state of all tables at a position: made, listed, removed
operations_request    what is asked for, with its command and job
defs                  an asset with an event for each cut, and the schedule of regular ones
"""
