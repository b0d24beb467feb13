"""How things are shown: as text, as JSON, as generated pages.

as_json     outcomes and records as plain JSON values
dumps       what was in the tables before a changefeed
files       data files as they were read, for a person
plan_text   what a plan will do, in words
tables      what there is, for a person
text        plans, inspections, outcomes and statuses as lines of text
type_page   fidelity reports and the page `docs/types.md`
"""
