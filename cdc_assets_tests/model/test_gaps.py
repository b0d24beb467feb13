"""What is shown of tables that lack rows, and how a person names them."""

from __future__ import annotations

import pytest

from cdc_assets.model.gaps import gap_cause, gap_text, is_complete, pattern_of
from cdc_assets.model.progress import Gap, Life
from cdc_assets.model.schema import TableId

OLD, OTHER = Life(TableId("s", "a"), 10), Life(TableId("s", "b"), 11)


@pytest.mark.parametrize("name", ["a", "a*", "a[b]", "a?", "[!x]", "a b", "Größe"])
def test_the_pattern_in_the_sentence_fits_its_table_and_no_other(name: str) -> None:
    life = Life(TableId("s", name), 10)
    assert is_complete(life, [pattern_of(life)])
    assert is_complete(life, [str(life)]) or set(name) & set("*?[")
    assert not is_complete(Life(TableId("s", f"{name}b"), 10), [pattern_of(life)])
    assert not is_complete(Life(TableId("s", "abx"), 10), [pattern_of(life)])


def test_the_sentence_names_the_cause_and_what_to_do() -> None:
    text = gap_text(Gap(OLD), OLD)
    assert "no CREATE TABLE" in text
    assert "cdc-assets release --complete s.a" in text
    assert "EXCHANGE" not in text
    assert "s.a, from which rows came by EXCHANGE PARTITION" in gap_text(Gap(OLD), OTHER)


def test_the_cause_names_no_table_and_is_the_same_for_all_of_its_kind() -> None:
    causes = {gap_cause(Gap(life), life) for life in (OLD, OTHER)}
    assert len(causes) == 1
    assert not any(str(life.born_as) in cause for cause in causes for life in (OLD, OTHER))
    assert gap_cause(Gap(OLD), OTHER) not in causes
