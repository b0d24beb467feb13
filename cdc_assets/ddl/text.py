"""SQL text -> tokens, and a cursor over them. The only use of sqlglot: its tokenizers know quotes and comments.

TiDB's grammar is wider than sqlglot's parser (partitions, AUTO_RANDOM, TTL, CLUSTERED), so clauses are read by hand.

`Query` is text that TiDB restored from its syntax tree: quotes in strings are doubled, backslashes stand for
themselves. Statements that TiDB could not parse are passed as the user wrote them; those are read again with MySQL's
escapes when the first reading leaves a quote open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import Tokenizer, TokenType
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from cdc_assets.model.names import fold_name
from cdc_assets.types.families import is_type


class Unreadable(Exception):
    """A clause that this parser does not know; the caller decides what that means for the table."""


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is word (upper case in `text`), name (quoted), string, number, bits, hex or sign; `raw` is as written."""

    kind: str
    text: str
    raw: str

    def is_word(self, word: str) -> bool:
        return self.kind in ("word", "sign") and self.text == word


class _Escaped(MySQL.Tokenizer):
    """MySQL's tokens; no first word turns the rest of the text into one string."""

    COMMANDS: ClassVar[set[TokenType]] = set()


class _Restored(_Escaped):
    """MySQL's tokens under NO_BACKSLASH_ESCAPES: a backslash in a string is an ordinary character."""

    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"']


class _Ansi(Postgres.Tokenizer):
    """PostgreSQL's tokens, and YQL's names in backquotes."""

    COMMANDS: ClassVar[set[TokenType]] = set()
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]


class _AnsiEscaped(_Ansi):
    """YQL's tokens: PostgreSQL's, with a backslash that escapes the character after it."""

    STRING_ESCAPES: ClassVar[list[str]] = ["'", "\\"]


_KINDS = {
    TokenType.IDENTIFIER: "name",
    TokenType.STRING: "string",
    TokenType.BYTE_STRING: "string",
    TokenType.HEREDOC_STRING: "string",
    TokenType.NATIONAL_STRING: "string",
    TokenType.NUMBER: "number",
    TokenType.BIT_STRING: "bits",
    TokenType.HEX_STRING: "hex",
}
_IN_NAME = re.compile(r"[\w$]")

_QUOTED_OR_COMMENT = re.compile(
    r"""'[^']*(?:'|\Z) | "[^"]*(?:"|\Z) | `[^`]*(?:`|\Z)
    | (?P<opens>/\*(?:T!(?:\[[^\]]*\])?|!\d*)) | /\*.*?(?:\*/|\Z) | (?:--(?:\s|\Z)|\#)[^\n]* | (?P<closes>\*/)""",
    re.VERBOSE | re.DOTALL,
)

_QUOTED_OR_END = re.compile(
    r"""'[^']*' | "[^"]*" | `[^`]*` | /\*.*?\*/ | (?:--\s|\#)[^\n]* | (?P<end>;)""", re.VERBOSE | re.DOTALL
)


def tokens(sql: str) -> tuple[Token, ...]:
    """Return the tokens of one statement, TiDB's and MySQL's version comments read as text; raises Unreadable.

    The semicolons at its end, which TiDB keeps in a DDL's text, are not part of it.
    """
    return _read(sql)[1]


@lru_cache(maxsize=8192)  # every plan reads every DDL again
def _read(sql: str) -> tuple[str, tuple[Token, ...]]:
    """Return a statement without version comments and with names in backquotes, and its tokens."""
    plain = _uncommented(sql)
    parts = _plain_tokens(plain) or _tokenized(plain, _Restored, _Escaped)
    if not _is_ansi(parts):
        return plain, parts
    plain = _in_backquotes(plain)
    return plain, _tokenized(plain, _Restored, _Escaped)


_BEFORE_NAMES = frozenset(
    (
        *("TABLE", "TABLES", "EXISTS", "DATABASE", "SCHEMA", "VIEW", "COLUMN", "INDEX", "KEY", "CONSTRAINT"),
        *("REFERENCES", "ADD", "MODIFY", "CHANGE", "DROP", "RENAME", "TO", "AFTER", "PARTITION", "USE", "."),
    )
)
"""Words and signs behind which a statement has a name, and no text."""


def _is_ansi(parts: Sequence[Token]) -> bool:
    """Return whether double quotes enclose names, as in the `sql_mode` ANSI_QUOTES: one is where no text can be.

    That is behind a word that a name follows, beside the dot of a qualified name, or before a type in a column's
    definition.
    """
    for place, part in enumerate(parts):
        if part.kind != "string" or not part.raw.startswith('"'):
            continue
        before, after = parts[place - 1] if place else _END, parts[place + 1] if place + 1 < len(parts) else _END
        if before.kind in ("word", "sign") and before.text in _BEFORE_NAMES:
            return True
        if after.is_word(".") or (before.text == "LIKE" and not any(token.is_word(",") for token in parts[:place])):
            return True
        if before.text in ("(", ",") and after.kind == "word" and is_type(after.text):
            return True
    return False


_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | `[^`]*` | /\*.*?\*/ | (?:--\s|\#)[^\n]* | "(?P<name>(?:[^"]|"")*)" """,
    re.VERBOSE | re.DOTALL,
)


def _in_backquotes(sql: str) -> str:
    """Return a text of ANSI_QUOTES with its names in backquotes."""
    return _QUOTED.sub(lambda part: part[0] if part["name"] is None else quote(part["name"].replace('""', '"')), sql)


def ansi_tokens(sql: str) -> tuple[Token, ...]:
    """Return the tokens of PostgreSQL's statements, or of YQL's; raises Unreadable."""
    return _tokenized(sql, _Ansi, _AnsiEscaped)


def _tokenized(sql: str, *tokenizers: type[Tokenizer]) -> tuple[Token, ...]:
    """Return the tokens as the first tokenizer reads them that can."""
    for tokenizer in tokenizers:
        try:
            sql_tokens = tokenizer().tokenize(sql)
        except SqlglotError:
            continue
        parts = list(_parts(sql_tokens, sql))
        while parts and (parts[-1].kind, parts[-1].text) == ("sign", ";"):
            parts.pop()
        return tuple(parts)
    raise Unreadable("a quote is not closed")


_PLAIN = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<sign>[(),]|=(?!=)|\.(?=`))
    | (?:(?P<word>[A-Za-z][A-Za-z0-9_]*) | (?P<number>[0-9]+) | `(?P<name>[^`\\]+)` | '(?P<string>[^'\\]*)')
      (?:(?=[ \t\r\n(),=])|\Z|(?<=`)(?=\.`))
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
"""A token of what nearly every CREATE TABLE is made of, up to what certainly ends it, or the sign where none begins."""


def _plain_tokens(sql: str) -> tuple[Token, ...]:
    """Return the tokens of a text of plain ones only, as the tokenizer reads them too, in a third of the time.

    Nothing for any other text: of those with escapes, prefixes of texts, other signs or comments it knows more.
    """
    parts: list[Token] = []
    for part in _PLAIN.finditer(sql.rstrip(" \t\r\n")):
        kind = part.lastgroup or "other"
        if kind == "other":
            return ()
        if kind == "word" or kind == "sign":
            parts.append(_unquoted(kind, part[kind]))
        else:
            parts.append(Token(kind, part[kind], part[0].lstrip(" \t\r\n")))
    return tuple(parts)


@lru_cache(maxsize=4096)
def _unquoted(kind: str, text: str) -> Token:
    return Token(kind, text.upper(), text)


def _parts(sql_tokens: Iterable[Any], plain: str) -> Iterator[Token]:
    digits = ""  # with which a name begins that has no quotes: a number to sqlglot
    for token in sql_tokens:
        raw = digits + plain[token.start : token.end + 1]
        kind = None if digits else _KINDS.get(token.token_type)
        digits = raw if kind == "number" and _IN_NAME.match(plain, token.end + 1) else ""
        if digits:
            continue
        if kind is not None:
            yield Token(kind, token.text, raw)
        elif token.token_type != TokenType.INTRODUCER or not raw.startswith("_"):
            kind = "word" if raw[0].isalnum() or raw[0] in "_$" else "sign"
            for word in raw.split():
                yield Token(kind, word.upper(), word)


def _uncommented(sql: str) -> str:
    """Open `/*T![feature] … */` and `/*!50100 … */`, outside quotes."""
    out: list[str] = []
    at, opened = 0, 0
    while match := _QUOTED_OR_COMMENT.search(sql, at):
        opens, closes = match["opens"] is not None, match["closes"] is not None
        if opens or (closes and opened):
            out += [sql[at : match.start()], " "]
            at, opened = match.end(), opened + (1 if opens else -1)
        else:
            end = match.start() + 1 if closes else match.end()
            out.append(sql[at:end])
            at = end
    return "".join([*out, sql[at:]])


_WRITTEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*") | `[^`]*(?:`|\Z)
    | (?P<opens>/\*(?P<of>M?!|T!)(?P<version>\d{5,6})?) | /\*.*?(?:\*/|\Z) | (?:--(?:\s|\Z)|\#)[^\n]*
    | (?P<closes>\*/)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}
"""Characters that MySQL reads behind a backslash as something other than themselves."""
_ESCAPED = {quoted: re.compile(rf"\\(.)|{quoted}{quoted}", re.DOTALL) for quoted in ("'", '"')}


def as_restored(sql: str, server: str) -> str:
    """Return a statement of MySQL or MariaDB as that server reads it, in the words in which TiDB restores one.

    Texts have no escapes. Of version comments what the server runs is opened, and nothing is left of the others: only
    MariaDB runs `/*M! … */`, and it leaves out what is for MySQL 5.7 to 9; TiDB's are comments to both. MariaDB's
    SET STATEMENT … FOR, which sets variables for one statement, is left out.
    """
    out: list[str] = []
    at, run, left_out = 0, 0, 0
    for part in _WRITTEN.finditer(sql):
        if not left_out:
            out.append(sql[at : part.start()])
        at = part.end()
        if part["opens"] is not None:
            is_run = not left_out and _runs(server, part["of"], int(part["version"] or 0))
            run, left_out = run + is_run, left_out + (not is_run)
            out.append(" ")
        elif part["closes"] is not None and (left_out or run):
            run, left_out = (run, left_out - 1) if left_out else (run - 1, 0)
            out.append(" ")
        elif not left_out:
            out.append(part[0] if part["text"] is None else _without_escapes(part[0]))
    text = "".join([*out, sql[at:]])
    if server != "mariadb":
        return text
    with suppress(Unreadable):
        statement = Cursor(tokens(text))
        if statement.accept("SET", "STATEMENT"):
            while not statement.accept("FOR"):
                statement.take()
            return render(statement.rest())
    return text


def _runs(server: str, of: str, version: int) -> bool:
    """Return whether a server runs a comment of a version, `of` is T! for TiDB's, M! for MariaDB's, ! for both."""
    if server == "mariadb":
        return of != "T!" and not (of == "!" and 50700 <= version <= 99999)
    return of == "!" and version < 100000


def _without_escapes(literal: str) -> str:
    """Return a text in quotes without escapes; what stands for itself behind a backslash does without."""
    if "\\" not in literal:
        return literal
    quoted = literal[0]
    text = _ESCAPED[quoted].sub(lambda part: _ESCAPES.get(part[1] or "", part[1] or quoted), literal[1:-1])
    return f"{quoted}{text.replace(quoted, quoted * 2)}{quoted}"


def statements(sql: str) -> tuple[str, ...]:
    """Cut a text at the semicolons that end statements; those in quotes and comments end none, what is blank is none.

    Raises Unreadable where what follows the last semicolon is more than blank or a comment: the text was cut off.
    """
    texts = []
    start = 0
    for part in _QUOTED_OR_END.finditer(sql):
        if part["end"]:
            texts.append(sql[start : part.start()].strip())
            start = part.end()
    if re.sub(r"/\*.*?\*/|(?:--\s|#)[^\n]*", "", sql[start:], flags=re.DOTALL).strip():
        raise Unreadable("its last statement does not end with a semicolon")
    return tuple(text for text in texts if text)


def names_in(sql: str) -> frozenset[str]:
    """Return all that may name a column in an expression: names in quotes, and words as they are written."""
    try:
        parts = tokens(sql)
    except Unreadable:
        return frozenset(re.findall(r"\w+", sql))
    return frozenset(part.text if part.kind == "name" else part.raw for part in parts if part.kind in ("name", "word"))


def concealed(sql: str, is_secret: Callable[[str], bool]) -> tuple[str, frozenset[str]]:
    """Return a statement without values in what it says of secret columns, and these values.

    `is_secret` is asked of folded names. Values are texts, bits and hex digits anywhere in a clause that names such a
    column, and numbers but for those in the arguments of its type; the statement loses its comments then. A text that
    cannot be read may name any: it ends where the first value may stand.
    """
    try:
        plain, parts = _read(sql)
        gaps = tuple(_gaps(plain, parts))
    except Unreadable:
        head, *rest = re.split(r"""(?i)(?=['"]|\b(?:DEFAULT|CHECK|AS|VALUES)\b)""", sql, maxsplit=1)
        return head + "'***'" * len(rest), frozenset(filter(str.strip, re.split(r"""['"]""", "".join(rest))))
    clauses = [clause for clause in _clauses(parts) if _names(parts, clause, is_secret)]
    if not clauses:
        return sql, frozenset()
    hidden = {place for clause in clauses for place in _values(parts, clause)}
    signs = {place - 1 for place in hidden if parts[place].kind == "number" and parts[place - 1].text in ("-", "+")}
    shown = ("" if place in signs else "'***'" if place in hidden else part.raw for place, part in enumerate(parts))
    text = "".join(f"{gap}{part}" for gap, part in zip(gaps, shown, strict=True))
    return text, frozenset(parts[place].text for place in hidden)


_GAP = re.compile(
    r"""(?P<blank>\s*)(?P<comments>(?:/\*.*?\*/|(?:--\s|\#)[^\n]*|\s+)*)(?P<charset>(?:_\w+\s*(?=['"xXbB]))?)""",
    re.DOTALL,
)


def _gaps(sql: str, parts: Sequence[Token]) -> Iterator[str]:
    """Yield the text before each token, without comments; raises Unreadable where the text is not made of them."""
    at = 0
    for part in parts:
        gap = _GAP.match(sql, at)
        assert gap is not None
        charset = gap["charset"] if sql.startswith(part.raw, gap.end()) else ""  # else it is the token itself
        at = gap.end() if charset else gap.end("comments")
        if not sql.startswith(part.raw, at):
            raise Unreadable("its tokens do not stand one after another")
        yield (gap["blank"] or " " * bool(gap["comments"])) + charset
        at += len(part.raw)


_SPECIFICATIONS = ("ADD", "ALTER", "CHANGE", "CONVERT", "DROP", "MODIFY", "RENAME")
"""The words with which a clause of ALTER TABLE begins that may say something of a column; others go on with one."""


def _clauses(parts: Sequence[Token]) -> Iterator[range]:
    """Yield the places of tokens that belong together: a column of a table, a clause of ALTER, or all that is left.

    What a statement has of partitions, or an unknown one has, is one clause, as is all behind the columns of a table.
    """
    start, depth, of_columns, seen = 0, 0, False, False
    verb = parts[0].text if parts else ""
    for place, part in enumerate(parts):
        before, after = (parts[n].text if 0 <= n < len(parts) else "" for n in (place - 1, place + 1))
        if part.is_word("("):
            begins = before in ("ADD", "COLUMN", "EXISTS") if verb == "ALTER" else verb == "CREATE" and not seen
            of_columns, seen = of_columns or (begins and not depth), True
            depth += 1
        elif part.is_word(")"):
            depth -= 1
            if of_columns and not depth:
                yield range(start, place)
                start, of_columns = place, False
        elif (
            part.is_word(",") and depth == of_columns and (of_columns or (verb == "ALTER" and after in _SPECIFICATIONS))
        ):
            yield range(start, place)
            start = place
    yield range(start, len(parts))


def _names(parts: Sequence[Token], clause: range, is_secret: Callable[[str], bool]) -> bool:
    """Return whether a clause has a name of a secret column; one in quotes of ANSI is a text here."""
    return any(
        is_secret(fold_name(part.raw if part.kind == "word" else part.text))
        for part in parts[clause.start : clause.stop]
    )


_BEFORE_VALUES = ("DEFAULT", "CHECK", "AS", "VALUES", "THAN", "INTERVAL")


def _values(parts: Sequence[Token], clause: range) -> Iterator[int]:
    """Yield the places of values in a clause."""
    begun = False
    for place in clause:
        part, before = parts[place], parts[place - 1] if place else None
        begun = begun or (part.kind == "word" and part.text in _BEFORE_VALUES)
        begun = begun or (part.is_word("(") and before is not None and before.text in ("(", ","))  # a key's expression
        if part.kind in ("string", "bits", "hex") and part.text:
            yield place
        elif part.kind == "number" and before is not None:
            compared = before.kind == "sign" and before.text not in ("(", ",")
            if begun or compared:
                yield place


def first_words(sql: str) -> tuple[str, ...]:
    """Return the first two tokens of a text in upper case; fewer where it has fewer. Raises Unreadable."""
    return tuple(token.text.upper() for token in tokens(sql)[:2])


def is_statement(sql: str, *words: str) -> bool:
    """Return whether a text begins with words in upper case, such as DROP and TABLE; not where it is unreadable."""
    with suppress(Unreadable):
        return tuple(token.text.upper() for token in tokens(sql)[: len(words)]) == words
    return False


def creates_if_absent(sql: str) -> bool:
    """Return whether a text is a CREATE TABLE IF NOT EXISTS. MySQL and MariaDB log it where the table is there, too."""
    return is_statement(sql, "CREATE", "TABLE", "IF", "NOT", "EXISTS")


def quote(name: str) -> str:
    """Return the name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def render(parts: Sequence[Token]) -> str:
    """Return the tokens as text that `tokens` reads back."""
    return " ".join(part.raw for part in parts)


@lru_cache(maxsize=1024)
def _either(word: str) -> frozenset[str]:
    return frozenset(word.split("|"))


def split(parts: Sequence[Token], sign: str = ",") -> list[tuple[Token, ...]]:
    """Split at a sign outside parentheses; no tokens give no pieces."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for part in parts:
        if part.kind == "sign":
            depth += (part.text == "(") - (part.text == ")")
            if depth == 0 and part.text == sign:
                pieces.append([])
                continue
        pieces[-1].append(part)
    return [tuple(piece) for piece in pieces] if parts else []


_END = Token("end", "", "")


class Cursor:
    """A place in a sequence of tokens. Every method that takes something raises Unreadable when it is not there."""

    def __init__(self, parts: Sequence[Token]) -> None:
        self.parts = tuple(parts)
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.parts)

    @property
    def next(self) -> Token:
        return self.parts[self.at] if self.at < len(self.parts) else _END

    def sees(self, *words: str) -> bool:
        """Return whether these words come next; `A|B` stands for either."""
        if self.at + len(words) > len(self.parts):
            return False
        for place, word in enumerate(words, self.at):  # a loop: most questions end at their first word
            part = self.parts[place]
            if part.kind not in ("word", "sign") or part.text not in _either(word):
                return False
        return True

    def accept(self, *words: str) -> bool:
        """Step over the words if they come next."""
        match = self.sees(*words)
        if match:
            self.at += len(words)
        return match

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise Unreadable(f'expected {" ".join(words)} before "{render(self.parts[self.at : self.at + 4])}"')

    def take(self) -> Token:
        if self.at >= len(self.parts):
            raise Unreadable("the text ends too early")
        self.at += 1
        return self.parts[self.at - 1]

    def word(self) -> str:
        token = self.take()
        if token.kind != "word":
            raise Unreadable(f'expected a word, found "{token.raw}"')
        return token.text

    def name(self) -> str:
        token = self.take()
        if token.kind not in ("name", "word"):
            raise Unreadable(f'expected a name, found "{token.raw}"')
        return token.text if token.kind == "name" else token.raw

    def qualified(self) -> tuple[str, str]:
        """Take `name` or `schema`.`name`; the schema is "" when it is not written."""
        first = self.name()
        return (first, self.name()) if self.accept(".") else ("", first)

    def column(self) -> str:
        """Take a column name, with whatever table it is qualified by."""
        name = self.name()
        while self.accept("."):
            name = self.name()
        return name

    def string(self) -> str:
        """Take a quoted string, or a word where MySQL accepts either (charset names)."""
        token = self.take()
        if token.kind == "string":
            return token.text
        if token.kind in ("word", "name"):
            return token.raw if token.kind == "word" else token.text
        raise Unreadable(f'expected a string, found "{token.raw}"')

    def partition_count(self) -> int:
        """Take a number of partitions: no table of TiDB has more than 8192 (`tidb:pkg/meta/model/table.go`)."""
        token = self.take()
        count = int(token.text) if token.kind == "number" and re.fullmatch(r"0*[0-9]{1,4}", token.text) else -1
        if not 0 <= count <= 8192:
            raise Unreadable(f'expected a number of partitions up to 8192, found "{token.raw[:80]}"')
        return count

    def group(self) -> tuple[Token, ...]:
        """Take a balanced pair of parentheses and return what is inside."""
        self.expect("(")
        start, depth = self.at, 1
        while depth:
            token = self.take()
            if token.kind == "sign":
                depth += (token.text == "(") - (token.text == ")")
        return self.parts[start : self.at - 1]

    def rest(self) -> tuple[Token, ...]:
        rest = self.parts[self.at :]
        self.at = len(self.parts)
        return rest
