"""DDL texts of masked columns: no value that stands in them is shown, and all else is."""

from __future__ import annotations

import pytest

from cdc_assets.ddl import concealed


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("ALTER TABLE `t` ADD COLUMN `m` INT(11) DEFAULT - 5, ADD b INT DEFAULT 5",
         "ALTER TABLE `t` ADD COLUMN `m` INT(11) DEFAULT  '***', ADD b INT DEFAULT 5"),
        ("ALTER TABLE t ADD COLUMN m VARCHAR(9) DEFAULT concat('a', 'b'), ADD c ENUM('x','y')",
         "ALTER TABLE t ADD COLUMN m VARCHAR(9) DEFAULT concat('***', '***'), ADD c ENUM('x','y')"),
        ("ALTER TABLE t ADD COLUMN (M ENUM('a','b') DEFAULT 'a', z VARCHAR(1) DEFAULT 'z')",
         "ALTER TABLE t ADD COLUMN (M ENUM('***','***') DEFAULT '***', z VARCHAR(1) DEFAULT 'z')"),
        ("ALTER TABLE t ADD COLUMN m VARCHAR(9) DEFAULT _utf8mb4'a', ADD n BIT(3) DEFAULT b'101'",
         "ALTER TABLE t ADD COLUMN m VARCHAR(9) DEFAULT _utf8mb4'***', ADD n BIT(3) DEFAULT b'101'"),
        ("ALTER TABLE t /* m is a */ ADD m BIGINT DEFAULT (77) -- a\n", "ALTER TABLE t ADD m BIGINT DEFAULT ('***')"),
        ('ALTER TABLE t ADD COLUMN "m" INT DEFAULT \'a\'', "ALTER TABLE t ADD COLUMN `m` INT DEFAULT '***'"),
        ("ALTER TABLE t FROBNICATE m WITH 'a', 'b'", "ALTER TABLE t FROBNICATE m WITH '***', '***'"),
        ("ALTER TABLE t ADD COLUMN m INT DEFAULT 7, ADD b VARCHAR(4) DEFAULT 'a",
         "ALTER TABLE t ADD COLUMN m INT '***'"),
        ("CREATE TABLE t (m INT DEFAULT 7, b INT DEFAULT 8, CHECK (m IN (1, 2)), KEY (m(3))) ENGINE=9",
         "CREATE TABLE t (m INT DEFAULT '***', b INT DEFAULT 8, CHECK (m IN ('***', '***')), KEY (m(3))) ENGINE=9"),
        ("CREATE TABLE t (m INT, b ENUM('x')) /*!50100 PARTITION BY LIST (m) (PARTITION p VALUES IN (1), "
         "PARTITION q VALUES IN (2)) */",
         "CREATE TABLE t (m INT, b ENUM('x'))   PARTITION BY LIST (m) (PARTITION p VALUES IN ('***'), "
         "PARTITION q VALUES IN ('***'))"),
        ("CREATE VIEW v (a) AS SELECT a FROM t WHERE b < 'z' AND m = 'a'",
         "CREATE VIEW v (a) AS SELECT a FROM t WHERE b < '***' AND m = '***'"),
        ("CREATE INDEX i ON t (b(2), (77 - m))", "CREATE INDEX i ON t (b(2), ('***' - m))"),
        ("ALTER TABLE t ADD UNIQUE i ((CASE WHEN m IN (7, 8) THEN COALESCE(b, 9) END)), ADD b DECIMAL(8,2) DEFAULT 5",
         "ALTER TABLE t ADD UNIQUE i ((CASE WHEN m IN ('***', '***') THEN COALESCE(b, '***') END)), "
         "ADD b DECIMAL(8,2) DEFAULT 5"),
        ("ALTER TABLE t ADD b INT DEFAULT 5 /* kept */", "ALTER TABLE t ADD b INT DEFAULT 5 /* kept */"),
    ],
)  # fmt: skip
def test_values_in_what_a_ddl_says_of_a_masked_column_are_not_shown(sql: str, shown: str) -> None:
    assert concealed(sql, {"m"}.__contains__)[0] == shown
