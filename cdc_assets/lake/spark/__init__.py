"""The Spark session and the gateway to Iceberg's Java API."""
