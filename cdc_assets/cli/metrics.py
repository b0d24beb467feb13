"""The command that shows metrics of a lake: once, in a file, or at an address that a Prometheus server reads."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import DONE, common_options, lake_options, named_lake, settings_option, show_json
from cdc_assets.errors import BadSettings, CdcError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@command(
    "metrics",
    "Lag, rows, holds and landing as text for Prometheus.",
    "metrics --settings changefeeds.yaml",
    "metrics --warehouse ./lake --output /var/lib/node_exporter/cdc_assets.prom",
    "metrics --settings changefeeds.yaml --port 9464",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Replace this file instead.")
@click.option("--port", type=click.IntRange(1, 65535), help="Serve /metrics on this port, until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address of --port.")
@lake_options(required=True)
@settings_option
@common_options
def metrics(
    as_json: bool,
    debug: bool,
    output: Path | None,
    port: int | None,
    host: str,
    warehouse: str | None,
    settings: str | None,
) -> int:
    """Print metrics of each table and landing in the text format of Prometheus. Starts no Spark.

    They are what `status` shows. With --settings the ends of topics are asked each time.
    """
    from cdc_assets.operations.metrics import metrics_text, replace_file

    if output is not None and port is not None:
        raise BadSettings("--output and --port exclude each other. Give one of them.")
    lake, loaded = named_lake(warehouse, settings, may_come=True)

    def text() -> str:
        return metrics_text(lake, loaded.changefeeds if loaded is not None else ())

    if port is not None:
        serve(text, host, port)
    elif output is not None:
        replace_file(output, text())
    elif as_json:
        show_json(text().splitlines())
    else:
        click.echo(text(), nl=False)
    return DONE


def serve(text: Callable[[], str], host: str, port: int) -> None:
    """Answer each request for /metrics with what `text` returns then, and with 503 where the lake cannot be read."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                body = text().encode()
            except CdcError as error:
                click.echo(f"cdc-assets: {error}", err=True)
                self.send_error(503, "the lake cannot be read")
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
            """Log no request."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise BadSettings(f"{host}:{port} cannot be used ({error.strerror}). Give another --port or --host.") from None
    with server:
        click.echo(f"metrics at http://{host}:{port}/metrics (Ctrl-C ends it)", err=True)
        server.serve_forever()
