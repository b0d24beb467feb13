"""Records that do not fit, set aside with their place, and taken in again after a fix.

lake                  records that were set aside
operations            quarantined records applied after a fix
cli                   the command that shows them, and replays them
"""
