"""Values that a connector of MySQL prints otherwise in its snapshot than in its log, in tables without key."""

from __future__ import annotations

import json
import struct
from collections import Counter
from random import Random
from typing import Any

import pytest

from cdc_assets.model.masks import Mask
from cdc_assets.model.schema import Column
from cdc_assets.types.printed_values import form_of
from cdc_assets_tests.binlog_connector import BinlogConnector, Change

TEXT = "CREATE TABLE `t` (`id` INT, `doc` JSON, `f` FLOAT)"
SNAPSHOT, LOG = (150, 0), 200


def json_form(text: str) -> str:
    function = form_of(Column("doc", "JSON"))
    assert function is not None
    form: str = function(text)
    return form


def of_server(value: Any) -> str:
    """Print a document as the server does."""
    return json.dumps(value, ensure_ascii=False)


def of_log(value: Any) -> str:
    """Print a document as the connector does that reads it in the log: in Java, without spaces."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{of_log(value)}" for name, value in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(of_log, value)) + "]"
    if isinstance(value, float):
        mantissa, _, exponent = f"{value!r}".partition("e")
        digits = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{digits}E{int(exponent)}" if exponent else digits
    if isinstance(value, str) and value.endswith(".000000"):
        return json.dumps(value.removesuffix(".000000"))
    return json.dumps(value)


def binary32(value: float) -> float:
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number


def six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def document(random: Random, depth: int = 0) -> Any:
    match random.randrange(9 if depth < 3 else 7):
        case 0:
            return random.choice([None, True, False])
        case 1:
            return random.randrange(-5, 5) * 10 ** random.randrange(18)
        case 2:
            return random.choice([1e15, 2.5e-7, 0.1, -3.0, 1e22, 12345678.9])
        case 3:
            return random.choice(["", "é", "1.50", "a b", "23:24"])
        case 4:
            return random.choice(["2015-01-15 23:24:25.000000", "-838:59:59.000000", "23:24:25.120000"])
        case 5 | 6:
            return random.randrange(3)
        case 7:
            return [document(random, depth + 1) for _ in range(random.randrange(4))]
        case _:
            return {name: document(random, depth + 1) for name in random.sample("abcd", random.randrange(4))}


@pytest.mark.parametrize("seed", range(20))
def test_a_document_has_one_form_however_it_is_printed_and_others_have_other_forms(seed: int) -> None:
    random = Random(seed)
    some = [document(random) for _ in range(200)]
    forms = {of_server(value): json_form(of_server(value)) for value in some}
    assert [json_form(of_log(value)) for value in some] == [forms[of_server(value)] for value in some]
    assert len(set(forms.values())) == len(forms)


@pytest.mark.parametrize("text", ["{", "", "[" * 5000, "hidden", "nul"])
def test_what_is_no_document_is_its_own_form(text: str) -> None:
    assert json_form(text) == text


def test_texts_that_look_like_times_are_other_ones_than_times() -> None:
    texts = ["10:00:00.10", "10:00:00.1", "10:00:00", "10:00:00.120000"]
    assert len({json_form(json.dumps(text)) for text in texts}) == len(texts)


def test_numbers_beyond_a_double_are_compared_by_all_their_digits() -> None:
    assert json_form("[0.12345678901234567890]") == json_form("[1.2345678901234567890E-1]")
    assert json_form("[0.12345678901234567890]") != json_form("[0.12345678901234567891]")
    assert json_form(f"[-0.{'7' * 64}]") == json_form(f"[-{'7' * 64}0E-65]")
    assert json_form(f"[0.{'7' * 64}]") != json_form(f"[0.{'7' * 63}8]")
    numbers = ["1e400", "1e401", "-1e400", f"1.{'2' * 30}e99999999", f"1.{'2' * 30}e99999999999999999999"]
    assert len(set(map(json_form, numbers))) == len(numbers)


def test_masked_values_have_no_form() -> None:
    assert form_of(Column("f", "FLOAT", mask=Mask("hash"))) is None


def test_bytes_in_a_document_are_compared_without_the_type_that_the_server_prints() -> None:
    assert json_form('{"b": "base64:type252:YWJj"}') == json_form('{"b":"YWJj"}') != json_form('{"b":"YWJk"}')


class Server:
    """A table without key that is read by a snapshot, and then changes."""

    def __init__(self, *rows: tuple[int, Any, float | None]) -> None:
        self.connector, self.pos = BinlogConnector(key=""), LOG
        self.connector.ddl(SNAPSHOT[0], TEXT, "CREATE", snapshot="true")
        last = len(rows) - 1
        for number, (id_, doc, f) in enumerate(rows):
            shown = {"id": id_, "doc": of_server(doc), "f": None if f is None else six_digits(f)}
            place = "last" if number == last else "true"
            self.connector.send(Change(*SNAPSHOT, "r", None, shown, place))

    def change(self, op: str, *sides: tuple[int, Any, float | None] | None) -> None:
        self.pos += 100
        before, after = (
            None if side is None else {"id": side[0], "doc": of_log(side[1]), "f": side[2]} for side in sides
        )
        self.connector.send(Change(self.pos, 0, op, before, after))

    @property
    def rows(self) -> Counter[tuple[int, str, float | None]]:
        rows = self.connector.apply()
        return Counter((row["id"], row["doc"], row["f"]) for row in rows)


A = (1, {"a": 2, "v": 1e15}, 3.1415927410125732)
B = (2, {"at": "2015-01-15 23:24:25.000000"}, 16777216.0)
C = (3, [1, 2], None)


@pytest.mark.parametrize("apart", [True, False], ids=["landed apart", "in one go"])
def test_rows_of_a_snapshot_are_deleted_by_what_the_log_prints(apart: bool) -> None:
    server = Server(A, B, C)
    if apart:
        assert sum(server.rows.values()) == 3
    server.change("d", A, None)
    server.change("u", B, (22, *B[1:]))
    server.change("d", C, None)
    assert server.rows == Counter([(22, of_log(B[1]), B[2])])


def test_of_equal_rows_one_is_deleted_and_one_of_equal_text_before_others() -> None:
    server = Server(A, A, C)
    server.change("c", None, A)
    server.change("d", A, None)
    assert server.rows == Counter({(1, of_server(A[1]), binary32(3.14159)): 2, (3, "[1, 2]", None): 1})


def test_a_row_of_the_log_is_not_deleted_for_another_one_with_the_same_six_digits() -> None:
    server = Server(C)
    server.change("c", None, (1, None, binary32(3.14159265)))
    assert sum(server.rows.values()) == 2
    server.change("d", (1, None, binary32(3.14159333)), None)
    assert ["no equal row" in reason for reason in server.connector.reasons()] == [True]


def test_a_row_with_another_document_is_not_deleted() -> None:
    server = Server(A, B, C)
    server.change("d", (1, {"a": 2, "v": 1e16}, A[2]), None)
    assert ["no equal row" in reason for reason in server.connector.reasons()] == [True]


def test_floats_with_a_fixed_number_of_digits_are_equal_beside_a_document() -> None:
    connector = BinlogConnector(key="")
    connector.ddl(150, "CREATE TABLE `t` (`id` INT, `doc` JSON, `f` FLOAT(10,3))", "CREATE", snapshot="true")
    connector.send(Change(150, 0, "r", None, {"id": 1, "doc": '{"a": 1}', "f": 12345.678}, "last"))
    connector.send(Change(200, 0, "d", {"id": 1, "doc": '{"a":1}', "f": binary32(12345.678)}, None))
    assert connector.apply() == []


def test_texts_of_mariadb_are_compared_as_they_are() -> None:
    connector = BinlogConnector(key="", server="mariadb")
    connector.ddl(150, "CREATE TABLE `t` (`id` INT, `doc` JSON)", "CREATE", snapshot="true")
    rows = [{"id": 1, "doc": text} for text in ('{"a": 1}', '{"a":1}', '{"a":  1}')]
    for number, row in enumerate(rows):
        connector.send(Change(150, 0, "r", None, row, ("first", "true", "last")[number]))
    connector.send(Change(200, 0, "d", rows[1], None))
    assert [row["doc"] for row in connector.apply()] == ['{"a": 1}', '{"a":  1}']
    connector.send(Change(300, 0, "d", {"id": 1, "doc": '{"a":   1}'}, None))
    assert ["no equal row" in reason for reason in connector.reasons()] == [True]


@pytest.mark.parametrize("seed", range(6))
def test_generated_changes_lead_to_the_rows_of_the_source(seed: int) -> None:
    random = Random(seed)
    there = [(random.randrange(2), document(random), random.choice([0.1, 16777216.0, None])) for _ in range(12)]
    server = Server(*there)
    for _ in range(30):
        if random.randrange(12) == 0:
            assert server.connector.reasons() == []
        new = (random.randrange(2), document(random), random.choice([0.1, 16777217.0 * 3, None]))
        old = there.pop(random.randrange(len(there))) if there and random.randrange(3) else None
        if old is not None and random.randrange(2):
            server.change("d", old, None)
            continue
        server.change("u" if old is not None else "c", old, new)
        there.append(new)
    wanted = [(id_, of_server(doc), f) for id_, doc, f in there]
    assert Counter(map(row_form, server.rows.elements())) == Counter(map(row_form, wanted))


def row_form(row: tuple[int, str, float | None]) -> tuple[Any, ...]:
    id_, doc, f = row
    return id_, json_form(doc), None if f is None else binary32(six_digits(f))
