"""A changefeed's table by its metadata file: read with PyIceberg, without a JVM, and each file once.

Progress has one home: the label of the newest labelled ancestor of main, snapshot properties that a step's own commit
carries. A table property of the same name counts only if no snapshot has the label any more (maintenance writes it
before it expires snapshots).

    snapshot   cdc.applied-ts  cdc.applied-phase (ddl|rows)  cdc.ddl-ts  cdc.positions (without commit-ts only)
               cdc.recipe (how its rows were read: the fingerprint of a `Recipe`)
    table      cdc.changefeed  cdc.identity  cdc.name (the name it should have, "" once dropped)
               cdc.gone (JSON: from which DROP to which RECOVER TABLE the source lacked it, null while it still does)
               cdc.repaired (the position of the newest repair)
               cdc.whole (the position of the newest repair that made all of its rows the source's)
               cdc.incomplete (the version before which rows are missing)  cdc.incomplete-of (whose: an identity)
               cdc.incomplete-why (why the feed does not bring them: a word of `Lack`)
               cdc.incomplete-reason (a sentence on messages that were gone)
               cdc.incomplete-accepted (true: a person let it go on without these rows)
               cdc.incomplete-behind (the position behind which they are missing, where that is known)
               cdc.missing-rows (the rows that a window proved to be missing: JSON)
               cdc.begins (of history tables that begin at a RENAME: its version)
               cdc.keyed-since (of history tables: from when on rows have their present key)
               cdc.columns (of history tables: when the source had which column, JSON)
               cdc.given-properties (those that the settings gave: JSON)
               cdc.initial (the TSO of the dump that it is based on)  cdc.initial-of (which table of which dump: JSON)
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadataUtil

from cdc_assets.errors import LakeUnavailable, TableHeld
from cdc_assets.lake.catalogs.catalog import local_path, read_bytes
from cdc_assets.lake.label import Label, kept_label
from cdc_assets.lake.metadata_file import GZIP, MetadataFile, parse_metadata_file
from cdc_assets.lake.names import Identifier, format_identity, format_name, parse_identity, parse_name
from cdc_assets.model.kinds import ColumnLife
from cdc_assets.model.layout import PLAIN, TableLayout, transforms_of
from cdc_assets.model.progress import AppliedState, Base, Filling, Gap, Lack, Life, MissingRows
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table.metadata import TableMetadata

    from cdc_assets.lake.staging.tasks import FirstLoad

CHANGEFEED, IDENTITY, NAME = "cdc.changefeed", "cdc.identity", "cdc.name"
SINCE = "_cdc_since"
"""Property of a history table that begins later than what its source table had."""
GONE = "cdc.gone"
"""Property of a table that was dropped at some time: [position of the DROP, that of the RECOVER or null] of each."""
BEGINS = "cdc.begins"
"""Property of a history table that begins at the RENAME which brought its source table under its rule: the version."""
REPAIRED = "cdc.repaired"
"""Property of a table that a repair gave the source's rows: the position of the comparison before it."""
WHOLE = "cdc.whole"
"""Property of a table all of whose rows a repair made the source's: the position of the comparison before it."""
REPLAY, REPAIR, REBUILD = "cdc.replay", "cdc.repair", "cdc.rebuild"
"""Properties of a snapshot: the token of the records of the quarantine that it brought in, the repair that made it, the
token of the rebuild that it swapped in."""
GAP = (
    *("cdc.incomplete", "cdc.incomplete-of", "cdc.incomplete-why", "cdc.incomplete-reason"),
    *("cdc.incomplete-accepted", "cdc.incomplete-behind"),
)
"""Properties of an incomplete table only."""
COLUMNS = "cdc.columns"
"""Property of a history table: the lives of its columns (JSON: column, source, since, until, types, names)."""
KEYED_SINCE = "cdc.keyed-since"
"""Property of a history table: the position from which rows have their present key, where they had another."""
FORGOTTEN = "cdc.forgotten"
"""Property of a table: the newest run that took rows out of it for good."""
FORGOTTEN_THROUGH = "cdc.forgotten-through"
"""Property of a table: through which position rows were taken out of it whose keys are not kept out, -1 for none."""
MISSING = "cdc.missing-rows"
"""Property of a table: the rows that a window proved to be missing (JSON of `MissingRows`)."""
GIVEN = "cdc.given-properties"
"""Property of a table: the properties that a person gave it by the settings (JSON)."""
BASE = ("cdc.initial", "cdc.initial-of")
"""Properties of a table that is based on a dump."""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of this changefeed as it is in the catalog now. `rows` is its row count, None if it is not known.

    `empty` says that its data files have no rows, not even deleted ones: the first rows may be files of its own.
    `file_bytes` and `data_files` come from the summary of its newest snapshot, None if it lacks them, and so does
    `hidden_rows`, of which deletion vectors say that they are no rows any more. `tags` are tagged
    snapshots by the name of their tag, `snapshots` counts all. `revision` is the newest run that took rows out of it
    for good, "" for none; `forgotten_through` is the position through which there were rows that are not kept out.
    `repaired` is the position of the newest repair, -1 for none, and `whole` that of the newest one that made all rows
    the source's. `layout` has the properties that a person gave it.
    `gone` has the positions of each DROP and of the RECOVER after it, None for a table that is dropped now. `begins` is
    the version of the RENAME at which a history table begins.
    """

    identifier: Identifier
    metadata_location: str
    life: Life
    name: TableId | None
    label: Label
    snapshot_id: int | None
    rows: int | None
    empty: bool = False
    location: str = ""
    parent_id: int | None = None
    file_bytes: int | None = None
    data_files: int | None = None
    hidden_rows: int | None = None
    gap: Gap | None = None
    base: Base | None = None
    tags: Mapping[str, int] = field(default_factory=dict)
    since: Tso | None = None
    snapshots: int = 0
    revision: str = ""
    forgotten_through: Tso = -1
    missing: MissingRows | None = None
    gone: tuple[tuple[Tso, Tso | None], ...] = ()
    repaired: Tso = -1
    whole: Tso = -1
    layout: TableLayout = PLAIN
    begins: Tso | None = None

    def gone_since(self, at: Tso) -> Tso | None:
        """Return the position of the DROP by which the table was gone at a position, None if it was there."""
        return next((since for since, until in self.gone if since <= at and (until is None or at < until)), None)

    @property
    def dropped(self) -> Tso | None:
        """The version of the DROP since which the source does not have the table, None for one that is there."""
        return next((since for since, until in self.gone if until is None), None)

    @property
    def standing(self) -> tuple[Label, str]:
        """The state from which a step is planned: how far the table is applied, and which run removed rows last."""
        return self.label, self.revision

    @property
    def applied(self) -> AppliedState:
        """The part that planning needs."""
        label = self.label
        shown = (self.gap, self.base, label.recipe, frozenset(self.tags), self.since)
        return AppliedState(
            label.progress,
            label.ddl,
            self.name,
            label.positions,
            *shown,
            forgotten=self.forgotten_through,
            missing=self.missing,
            begins=self.begins,
            repaired=self.repaired,
            whole=self.whole,
            dropped=self.dropped,
            layout=self.layout,
        )


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """A table, and the name of the changefeed that made it."""

    changefeed: str
    lake_table: LakeTable


_cache: dict[str, OwnedTable | None] = {}
_cache_lock = Lock()


def read_standing(catalog: Catalog, standing: Iterable[tuple[Identifier, str]]) -> list[OwnedTable]:
    """Return the changefeeds' tables among those of the catalog, each with its current name.

    `standing` is everything in the catalog: files that it no longer names are forgotten. Raises FileNotFoundError if a
    commit removed a file after it was listed.
    """
    named = list(standing)
    unread = [place for _, place in named if place not in _cache]
    if len(unread) > 1 and not any(map(local_path, unread)):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda place: _interpreted(catalog, place), unread))
    owned = [read_owned(catalog, place, identifier) for identifier, place in named]
    places = {place for _, place in named}
    # The cache keeps what catalogs name now, and a thousand more.
    with _cache_lock:
        if len(_cache) > 2 * len(places) + 1000:
            for place in _cache.keys() - places:
                del _cache[place]
    return [table for table in owned if table is not None]


def read_owned(catalog: Catalog, place: str, identifier: Identifier) -> OwnedTable | None:
    """Return the table of that name by its metadata file, None if it is not a changefeed's.

    Raises FileNotFoundError.
    """
    owned = _interpreted(catalog, place)
    if owned is not None and owned.lake_table.identifier != identifier:
        owned = OwnedTable(owned.changefeed, replace(owned.lake_table, identifier=identifier))
        with _cache_lock:
            _cache[place] = owned
    return owned


def _interpreted(catalog: Catalog, place: str) -> OwnedTable | None:
    with suppress(KeyError):
        return _cache[place]
    owned = _interpret(place, read_file(catalog, place))
    with _cache_lock:
        _cache[place] = owned
    return owned


def _interpret(place: str, file: MetadataFile) -> OwnedTable | None:
    if IDENTITY not in file.properties:
        return None
    labels = (Label.parse(snapshot.summary) for snapshot in file.lineage())
    label = next((label for label in labels if label is not None), None) or kept_label(file)
    if label is None:
        return None
    snapshot = file.snapshot
    lake_table = LakeTable(
        identifier=("", ""),
        metadata_location=place,
        life=parse_identity(file.properties[IDENTITY]),
        name=parse_name(file.properties.get(NAME, "")),
        label=label,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        rows=snapshot.rows if snapshot else 0,
        empty=snapshot.empty if snapshot else True,
        location=file.location,
        parent_id=snapshot.parent_id if snapshot else None,
        file_bytes=snapshot.number("total-files-size") if snapshot else 0,
        data_files=snapshot.number("total-data-files") if snapshot else 0,
        hidden_rows=snapshot.number("total-position-deletes") if snapshot else 0,
        gap=_parse_gap(file.properties),
        base=_parse_base(file.properties),
        since=int(file.properties[SINCE]) if file.properties.get(SINCE) else None,
        begins=int(file.properties[BEGINS]) if file.properties.get(BEGINS) else None,
        tags=file.tags,
        snapshots=len(file.snapshots),
        revision=file.properties.get(FORGOTTEN, ""),
        forgotten_through=int(file.properties.get(FORGOTTEN_THROUGH, -1)),
        missing=MissingRows(**json.loads(file.properties[MISSING])) if file.properties.get(MISSING) else None,
        gone=tuple((since, until) for since, until in json.loads(file.properties.get(GONE, "[]"))),
        repaired=int(file.properties.get(REPAIRED, -1)),
        whole=int(file.properties.get(WHOLE, -1)),
        layout=TableLayout(
            file.partition,
            file.sort,
            json.loads(file.properties.get(GIVEN, "{}")),
            snapshot is not None and snapshot.marks_deletes,
        ),
    )
    return OwnedTable(file.properties.get(CHANGEFEED, ""), lake_table)


def format_base(base: Base | None) -> dict[str, str]:
    """Return the properties of a table that is based on a dump; none for any other."""
    if base is None:
        return {}
    fields: dict[str, str | None] = {"table": format_name(base.table), "uri": base.uri, "query": base.query}
    fields |= {"collation": base.collation, "timezone": base.timezone}
    return dict(zip(BASE, (str(base.at), json.dumps(fields, ensure_ascii=False)), strict=True))


def format_lives(lives: Iterable[ColumnLife]) -> dict[str, str]:
    """Return the property that says when the source had which column of a history table."""
    return {COLUMNS: json.dumps([asdict(life) for life in lives], ensure_ascii=False)}


def parse_lives(properties: Mapping[str, str]) -> tuple[ColumnLife, ...]:
    """Return the lives that `format_lives` wrote, none for a mirror."""
    lives = json.loads(properties.get(COLUMNS, "[]"))
    past = ("types", "names")
    return tuple(ColumnLife(**{**life, **{name: tuple(map(tuple, life[name])) for name in past}}) for life in lives)


def format_gap(gap: Gap | None) -> dict[str, str]:
    """Return the properties of an incomplete table; none for a complete one."""
    if gap is None:
        return {}
    behind = str(gap.sound_through) if gap.sound_through >= gap.since else ""
    accepted, why = "true" * gap.accepted, gap.filling.lack.value
    values = (str(gap.since), format_identity(gap.life), why, gap.reason, accepted, behind)
    return {name: value for name, value in zip(GAP, values, strict=True) if value}


def _parse_gap(properties: Mapping[str, str]) -> Gap | None:
    if GAP[1] not in properties:
        return None
    _, of, why, reason, accepted, behind = GAP
    return Gap(
        parse_identity(properties[of]),
        filling=Filling(Lack(properties[why])),
        reason=properties.get(reason, ""),
        at=int(properties.get(behind, 0)),
        accepted=accepted in properties,
    )


def _parse_base(properties: Mapping[str, str]) -> Base | None:
    if not all(properties.get(name) for name in BASE):
        return None
    fields = json.loads(properties[BASE[1]])
    table = parse_name(fields["table"])
    assert table is not None
    return Base(
        int(properties[BASE[0]]), table, fields["uri"], fields["query"], fields["collation"], fields["timezone"]
    )


# --- one metadata file ------------------------------------------------------------------------------------------------


def read_file(catalog: Catalog, place: str) -> MetadataFile:
    """Return the content of a metadata file; raises FileNotFoundError."""
    data = read_bytes(catalog, place)
    try:
        return parse_metadata_file(data)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeUnavailable(
            f"{place}: the catalog names it as a table's metadata, but it is not an Iceberg metadata file ({error!r}). "
            "Restore the file, or remove the table from the catalog."
        ) from error


def read_model(catalog: Catalog, place: str) -> TableMetadata:
    """Return the content of a metadata file as PyIceberg's model: schemas, specs and manifests too."""
    data = read_bytes(catalog, place)
    return TableMetadataUtil.parse_raw((gzip.decompress(data) if data.startswith(GZIP) else data).decode())


def snapshot_below(file: MetadataFile, lake_table: LakeTable, version: Tso) -> tuple[int, Label]:
    """Return the newest snapshot that has not seen the DDL of that version, and its label: the state before it.

    Not by progress: rows through a checkpoint that is the DDL's own TSO come before the DDL.
    """
    if lake_table.snapshot_id is not None and lake_table.label.ddl < version:
        return lake_table.snapshot_id, lake_table.label
    for snapshot in file.lineage(across_rewrites=True):
        label = Label.parse(snapshot.summary)
        if label is not None and label.ddl < version:
            return snapshot.snapshot_id, label
    raise TableHeld(
        f"{lake_table.life}: no snapshot from before version {version} is left, so its rows cannot be exchanged. "
        "Snapshots of a table must not be expired while an exchange is open; rebuild both tables.",
        table=str(lake_table.life),
    )


def landing_of(metadata: TableMetadata, empty: bool = True) -> FirstLoad | None:
    """Return the location of a table's data files, None if only Iceberg's own writer may write them."""
    properties, names = metadata.properties, {field.field_id: field.name for field in metadata.schema().fields}
    order = next((own for own in metadata.sort_orders if own.order_id == metadata.default_sort_order_id), None)
    partition, sort = (
        transforms_of([(str(field.transform), field.source_id) for field in fields], names)
        for fields in (metadata.spec().fields, () if order is None else order.fields)
    )
    plain = properties.get("write.format.default", "parquet") == "parquet"
    if (
        not plain
        or partition is None
        or sort is None
        or properties.get("write.object-storage.enabled", "false") == "true"
    ):
        return None
    from cdc_assets.lake.staging.tasks import FirstLoad

    layout = TableLayout(partition, sort, properties)
    columns = {
        field.name: (str(field.field_type), field.field_id, getattr(field.field_type, "element_id", None))
        for field in metadata.schema().fields
    }
    directory = properties.get("write.data.path") or f"{metadata.location}/data"
    return FirstLoad(directory.rstrip("/"), metadata.current_schema_id, columns, empty, layout)
