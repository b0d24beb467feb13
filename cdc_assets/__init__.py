"""From a TiDB changefeed in object storage to Iceberg tables.

changefeed/ ──▶ history ──▶ plan ──▶ pipeline ──▶ lake/ ──▶ Iceberg
  listing         lives      steps     run each     ▲
                    ▲                                │ staged Parquet
                  ddl/      formats/ ──▶ checks ──▶ evolution ──▶ reduce
                            └──────── window, on Spark's executors ────┘
"""
