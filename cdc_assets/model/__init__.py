"""Values that cross a stage. Frozen, small, picklable: they travel to Spark executors and between Dagster ops.

    splits (files, schema files) ──▶ history of each table (Life) ──▶ steps ──▶ reports
                    │                                                   ▲
                    └────────────── schema, schema_changes ─────────────┘

Imports nothing but the standard library.
"""
