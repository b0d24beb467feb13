"""Layouts as a person writes them, which types they are for, and which properties are free."""

from __future__ import annotations

import pytest

from cdc_assets.model.layout import LayoutRules, TableLayout, Transform, parse_transforms, refused_property
from cdc_assets.model.schema import TableId

DAY, BUCKET, ID = Transform("day", "created_at"), Transform("bucket", "id", 16), Transform("identity", "id")


@pytest.mark.parametrize(
    ("text", "transforms"),
    [
        ("day(created_at), bucket(16, id)", (DAY, BUCKET)),
        (" id ", (ID,)),
        ("bucket( 16 ,id )", (BUCKET,)),
        ("day(`a, b)`), `c``d`", (Transform("day", "a, b)"), Transform("identity", "c`d"))),
        ("truncate(4, straße)", (Transform("truncate", "straße", 4),)),
        ("day", (Transform("identity", "day"),)),
    ],
)
def test_a_list_of_transforms_is_read_and_printed(text: str, transforms: tuple[Transform, ...]) -> None:
    assert parse_transforms(text) == transforms
    assert parse_transforms(", ".join(map(str, transforms))) == transforms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("week(at)", "known are identity, year"),
        ("bucket(id)", "expected one like bucket\\(16, id\\)"),
        ("bucket(0, id)", "expected one like"),
        ("day(3, at)", "expected one like day\\(at\\)"),
        ("bucket(9999999999, id)", "expected one like"),
        ("day(at) id", "neither a column nor a transform"),
        ("day(at", "neither a column nor a transform"),
        ("id, , at", "neither a column nor a transform"),
        ("day(at), AT", "is there twice"),
    ],
)
def test_what_is_no_transform_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_transforms(text)


@pytest.mark.parametrize(
    ("layout", "clause"),
    [
        (TableLayout((DAY, BUCKET), (ID,)), ""),
        (TableLayout(sort=(Transform("identity", "created_at"),)), ""),
        (TableLayout((Transform("identity", "price"),)), ""),
        (TableLayout((Transform("day", "id"),)), "has the type long"),
        (TableLayout((Transform("identity", "created_at"),)), "has the type timestamptz"),
        (TableLayout((Transform("bucket", "none", 4),)), 'no column "none"'),
        (TableLayout((Transform("year", "created_at"),)), 'the column "created_at_year"'),
    ],
)
def test_a_layout_fits_some_columns_and_others_not(layout: TableLayout, clause: str) -> None:
    types = {"id": "long", "created_at": "timestamptz", "price": "decimal(9, 2)", "created_at_year": "int"}
    assert clause in layout.misfit(types)
    assert bool(layout.misfit(types)) == bool(clause)


def test_the_most_exact_pattern_counts_and_properties_of_several_add_up() -> None:
    rules = LayoutRules(
        {"shop.orders": (DAY,), "shop.*": (BUCKET,)},
        {"*.*": (ID,)},
        {"shop.orders": {"a": "2"}, "shop.*": {"a": "1", "b": "1"}, "x.*": {"c": "1"}},
    )
    assert rules.of(TableId("Shop", "ORDERS")) == TableLayout((DAY,), (ID,), {"a": "2", "b": "1"})
    assert rules.of(TableId("shop", "items")).partition == (BUCKET,)


@pytest.mark.parametrize(
    ("name", "value"),
    [("cdc.name", "x"), ("_cdc_since", "1"), ("format-version", "2"), ("write.delete.mode", "copy-on-write"),
     ("write.format.default", "orc"), ("write.data.path", "/x"), ("gc.enabled", "false"), ("location", "/x"),
     ("write.parquet.compression-codec", "lzo"), ("write.parquet.compression-level", "much"),
     ("encryption.key-id", "k")],
)  # fmt: skip
def test_properties_that_the_project_depends_on_are_refused(name: str, value: str) -> None:
    assert refused_property(name, value)


def test_other_properties_are_free() -> None:
    assert not refused_property("write.parquet.compression-codec", "gzip")
    assert not refused_property("write.metadata.metrics.default", "none")
    assert not refused_property("comment.of.a.person", "yes")
