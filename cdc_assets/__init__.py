"""From a TiDB changefeed in object storage to Iceberg tables.

    changefeed.py ──▶ plan.py ──▶ pipeline.py ──▶ lake/ ──▶ Iceberg
      listing          steps        run each        ▲
                        ▲                           │ staged Parquet
                      ddl.py          formats/ ──▶ reduce.py ──▶ checks.py
                                      on Spark's executors
"""
