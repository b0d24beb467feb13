"""Presentation: as text, as JSON, as generated pages.

as_json     outcomes and records as plain JSON values
columns     columns of printed tables, with their meanings
explanation  where a row comes from
findings    what was found of a changefeed, one paragraph a cause
landings    what is landed of topics
metrics     metrics of a lake in the text format of Prometheus
plan_text   what a plan will do, in words
tables      tables of a changefeed and of a lake, for a person
text        plans, inspections, outcomes and statuses as lines of text
settings_page   the page `docs/settings.md`: every setting with default and meaning
type_page   fidelity reports and the page `docs/types.md`
"""
