"""Partition expressions -> `Predicate` nodes over lake columns, constants folded.

Known are integer columns, + - * DIV % MOD ABS, the calendar parts of DATE and DATETIME columns, and UNIX_TIMESTAMP of
a TIMESTAMP column. All else raises Unreadable: what depends on a time zone, a collation or a function of TiDB's own.
"""

from __future__ import annotations

from datetime import date, datetime

from cdc_assets.ddl.text import Cursor, Unreadable, tokens
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import Predicate
from cdc_assets.model.wording import counted

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR")
_TEXTS = ("CHAR", "VARCHAR", "VAR_STRING")
_PADDED = ("utf8mb4_bin", "utf8_bin", "latin1_bin", "ascii_bin")
_EXACT = ("utf8mb4_0900_bin", "binary")
_CALENDAR = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "DAY": "day",
    "DAYOFMONTH": "day",
    "DAYOFWEEK": "dayofweek",
    "DAYOFYEAR": "dayofyear",
    "WEEKDAY": "weekday",
    "TO_DAYS": "to_days",
}
_CLOCK = {"HOUR": "hour", "MINUTE": "minute", "SECOND": "second"}
_DAY_0 = 719528
"""TO_DAYS('1970-01-01')."""


# --- nodes ------------------------------------------------------------------------------------------------------------


def literal(kind: str, text: str) -> Predicate:
    """Return a constant: `kind` is int, date, datetime, string or binary (as hex digits)."""
    return Predicate("literal", (), text, kind)


def number(op: str, *args: Predicate) -> Predicate:
    """Return an integer function of the arguments, NULL when one of them is."""
    return Predicate(op, args, type="int", nullable=any(arg.nullable for arg in args))


def compare(op: str, first: Predicate, second: Predicate) -> Predicate:
    """Return `first op second`, false for NULL."""
    return Predicate(op, (first, second), nullable=first.nullable or second.nullable)


def is_null(value: Predicate) -> Predicate:
    """Return the test for NULL; an empty "or", which is false, for a value that cannot be NULL."""
    return Predicate("is_null", (value,)) if value.nullable else Predicate("or")


def either(*parts: Predicate) -> Predicate:
    """Return the parts joined by OR."""
    some = tuple(part for part in parts if part != Predicate("or"))
    return some[0] if len(some) == 1 else Predicate("or", some)


def negate(part: Predicate) -> Predicate:
    """Return NOT part."""
    return Predicate("not", (part,))


def field(name: str, schema: TableSchema) -> Predicate:
    """Return a column as its lake type compares; padded texts without trailing spaces."""
    for column in schema.columns:
        if column.name.lower() == name.lower():
            return _field(column)
    raise Unreadable(f'the column "{name}" of the partition definition does not exist')


def _field(column: Column) -> Predicate:
    if column.virtual:
        raise Unreadable(f'the virtual column "{column.name}" is not in the lake')
    kind = _kind(column)
    # a zero date is NULL in the lake whatever the column says
    nullable = column.nullable or kind in ("date", "datetime", "instant")
    node = Predicate("column", (), column.name, kind, nullable)
    if kind != "string":
        return node
    if column.compares_by in _PADDED:
        return Predicate("trim", (node,), type="string", nullable=nullable)
    if column.compares_by in _EXACT:
        return node
    raise Unreadable(f'texts of "{column.name}" compare by the collation {column.collation or "unknown"}, not by bytes')


def _kind(column: Column) -> str:
    if column.type in _INTEGERS:
        return "unsigned" if column.type == "BIGINT" and column.unsigned else "int"
    if column.type in _TEXTS:
        return "string"
    if column.type in ("BINARY", "VARBINARY"):
        return "binary"
    kinds = {"DATE": "date", "DATETIME": "datetime", "TIMESTAMP": "instant"}
    if column.type not in kinds:
        raise Unreadable(f'{column.type} of "{column.name}" is not known as a partition column')
    return kinds[column.type]


def value_of(text: str, against: Predicate) -> Predicate:
    """Return a bound or list value as a literal of the kind that it is compared with."""
    parts = tokens(text)
    if against.type in ("int", "unsigned"):
        return literal("int", str(int(parts[0].text) if parts[0].kind == "string" else constant(text)))
    at = Cursor(parts)
    at.accept("DATE|TIMESTAMP|DATETIME")
    token = at.take()
    if at or token.kind not in ("string", "hex"):
        raise Unreadable(f"{text} is not a plain value")
    if against.type == "date":
        return literal("date", _moment(token.text).date().isoformat())
    if against.type == "datetime":
        return literal("datetime", _moment(token.text).isoformat(" "))
    if against.type == "binary":
        return literal("binary", token.text if token.kind == "hex" else token.text.encode().hex())
    if against.type != "string" or token.kind == "hex":
        raise Unreadable(f"{text} cannot be compared with this column")
    return literal("string", token.text.rstrip(" ") if against.op == "trim" else token.text)


def _moment(text: str) -> datetime:
    for form in ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y%m%d", "%Y%m%d%H%M%S"):
        try:
            return datetime.strptime(text.strip(), form)
        except ValueError:
            continue
    raise Unreadable(f"'{text}' is not a date in the usual form")


# --- expressions ------------------------------------------------------------------------------------------------------


def expression(text: str, schema: TableSchema) -> Predicate:
    """Read an integer expression over columns; raises Unreadable for any other."""
    at = Cursor(tokens(text))
    predicate = _sum(at, schema)
    if at:
        raise Unreadable(f'"{at.next.raw}" in {text} is not known')
    if predicate.type not in ("int", "unsigned"):
        raise Unreadable(f"{text} is not an integer")
    return predicate


def constant(text: str) -> int:
    """Return the value of a constant integer expression; raises Unreadable."""
    predicate = expression(text, TableSchema(()))
    if predicate.op != "literal":
        raise Unreadable(f"{text} is not constant")
    return int(predicate.value)


def _sum(at: Cursor, schema: TableSchema) -> Predicate:
    total = _product(at, schema)
    while at.sees("+|-"):
        op = at.take().text
        total = _arithmetic(op, total, _product(at, schema))
    return total


def _product(at: Cursor, schema: TableSchema) -> Predicate:
    product = _unary(at, schema)
    while at.sees("*|DIV|%|MOD"):
        op = at.take().text.lower()
        product = _arithmetic({"%": "mod"}.get(op, op), product, _unary(at, schema))
    return product


def _unary(at: Cursor, schema: TableSchema) -> Predicate:
    if at.accept("-"):
        return _arithmetic("-", literal("int", "0"), _unary(at, schema))
    at.accept("+")
    if at.sees("("):
        inner = Cursor(at.group())
        operand = _sum(inner, schema)
        if inner:
            raise Unreadable(f'"{inner.next.raw}" is not known')
        return operand
    token = at.next
    if token.kind == "number" and token.text.isdecimal():
        return literal("int", at.take().text)
    if token.kind == "string":
        return literal("string", at.take().text)
    if token.kind == "word" and at.at + 1 < len(at.parts) and at.parts[at.at + 1].is_word("("):
        return _call(at.take().text, Cursor(at.group()), schema)
    if token.kind in ("name", "word"):
        return field(at.column(), schema)
    raise Unreadable(f'"{token.raw}" is not known in a partition expression')


def _arithmetic(op: str, first: Predicate, second: Predicate) -> Predicate:
    if first.type != "int" or second.type != "int":
        raise Unreadable(f"arithmetic ({op}) on other than integers below 2^63 is not evaluated here")
    if op in ("div", "mod") and (second.op != "literal" or int(second.value) == 0):
        raise Unreadable(f"{op.upper()} by other than a constant is not evaluated here")
    if first.op == second.op == "literal":
        return literal("int", str(_fold(op, int(first.value), int(second.value))))
    return number(op, first, second)


def _fold(op: str, a: int, b: int) -> int:
    if op in ("div", "mod"):
        whole = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return whole if op == "div" else a - whole * b
    return a + b if op == "+" else a - b if op == "-" else a * b


def _call(name: str, inside: Cursor, schema: TableSchema) -> Predicate:
    if name == "EXTRACT":
        return _extract(inside, schema)
    args = [_sum(inside, schema)]
    while inside.accept(","):
        args.append(_sum(inside, schema))
    if inside:
        raise Unreadable(f'"{inside.next.raw}" in {name}() is not known')
    if name == "MOD" and len(args) == 2:
        return _arithmetic("mod", *args)
    if name == "DATEDIFF" and len(args) == 2:
        return _arithmetic("-", _part("TO_DAYS", args[0]), _part("TO_DAYS", args[1]))
    if len(args) != 1:
        raise Unreadable(f"{name}() of {counted(len(args), 'value')} is not known")
    arg = args[0]
    if name in _CALENDAR or name in _CLOCK:
        return _part(name, arg)
    if name == "TO_SECONDS":
        days = _arithmetic("*", _part("TO_DAYS", arg), literal("int", "86400"))
        if arg.type == "date":
            return days
        for unit, size in (("HOUR", "3600"), ("MINUTE", "60"), ("SECOND", "1")):
            days = _arithmetic("+", days, _arithmetic("*", _part(unit, arg), literal("int", size)))
        return days
    if name in ("FLOOR", "CEILING", "CEIL") and arg.type == "int":
        return arg
    if name == "ABS" and arg.type == "int":
        return literal("int", str(abs(int(arg.value)))) if arg.op == "literal" else number("abs", arg)
    if name == "UNIX_TIMESTAMP" and arg.type == "instant":
        return number("unix_timestamp", arg)
    if name == "UNIX_TIMESTAMP":
        raise Unreadable("UNIX_TIMESTAMP of a text depends on the time zone of the session that created the partition")
    raise Unreadable(f"{name}() is not evaluated here")


def _part(name: str, arg: Predicate) -> Predicate:
    """A part of a date: of a column, or of a constant text."""
    if arg.op == "literal" and arg.type == "string":
        return literal("int", str(_constant_part(name, _moment(arg.value))))
    if arg.type == "datetime" or (arg.type == "date" and name in _CALENDAR):
        return number({**_CALENDAR, **_CLOCK}[name], arg)
    raise Unreadable(f"{name}() of this value is not evaluated here")


def _constant_part(name: str, moment: datetime) -> int:
    parts = {
        "YEAR": moment.year,
        "QUARTER": (moment.month + 2) // 3,
        "MONTH": moment.month,
        "DAY": moment.day,
        "DAYOFMONTH": moment.day,
        "DAYOFWEEK": moment.isoweekday() % 7 + 1,
        "DAYOFYEAR": moment.timetuple().tm_yday,
        "WEEKDAY": moment.weekday(),
        "TO_DAYS": (moment.date() - date(1970, 1, 1)).days + _DAY_0,
        "HOUR": moment.hour,
        "MINUTE": moment.minute,
        "SECOND": moment.second,
    }
    return parts[name]


def _extract(inside: Cursor, schema: TableSchema) -> Predicate:
    unit = inside.word()
    inside.expect("FROM")
    arg = _sum(inside, schema)
    if inside:
        raise Unreadable(f'"{inside.next.raw}" in EXTRACT() is not known')
    if unit == "YEAR_MONTH":
        hundred = _arithmetic("*", _part("YEAR", arg), literal("int", "100"))
        return _arithmetic("+", hundred, _part("MONTH", arg))
    if unit in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
        return _part(unit, arg)
    raise Unreadable(f"EXTRACT({unit} …) is not evaluated here")
