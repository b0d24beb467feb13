"""Foreign keys that change rows of which the log of MySQL and MariaDB has nothing."""

from __future__ import annotations

import pytest

from cdc_assets.ddl import cascades


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "CREATE TABLE `c` (`id` int NOT NULL, `p` int DEFAULT NULL, PRIMARY KEY (`id`), KEY `p` (`p`), "
            "CONSTRAINT `c_1` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE CASCADE ON UPDATE SET NULL) "
            "ENGINE=InnoDB",
            (("p", "ON DELETE CASCADE ON UPDATE SET NULL"),),
        ),
        (
            "CREATE TABLE c (a INT, b INT, FOREIGN KEY k (a, b) REFERENCES d.p (x, y) MATCH FULL ON UPDATE CASCADE)",
            (("a", "ON UPDATE CASCADE"), ("b", "ON UPDATE CASCADE")),
        ),
        (
            "CREATE TABLE c (id INT PRIMARY KEY, p INT REFERENCES p (id) ON DELETE CASCADE)",
            (("p", "ON DELETE CASCADE"),),
        ),
        (
            "ALTER TABLE c ADD CONSTRAINT FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET DEFAULT",
            (("p", "ON DELETE SET DEFAULT"),),
        ),
        (
            "ALTER TABLE c ADD q INT, ADD COLUMN (r INT REFERENCES p (id) ON DELETE CASCADE, s INT)",
            (("r", "ON DELETE CASCADE"),),
        ),
        (
            "CREATE TABLE c (p INT, CONSTRAINT UNIQUE (p), CONSTRAINT CHECK (p > 0), CONSTRAINT PRIMARY KEY (p), "
            "CONSTRAINT FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
            (("p", "ON DELETE CASCADE"),),
        ),
        ("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION)", ()),
        ("CREATE TABLE c (t TIMESTAMP ON UPDATE NOW(), x TEXT COMMENT 'REFERENCES p ON DELETE CASCADE')", ()),
        ("CREATE TABLE c LIKE p", ()),
        ("ALTER TABLE c DROP FOREIGN KEY k, DROP COLUMN p", ()),
        ("RENAME TABLE c TO d", ()),
        ("no statement ON DELETE CASCADE", ()),
    ],
)
def test_the_columns_of_a_foreign_key_are_told_with_what_it_does(sql: str, expected: object) -> None:
    assert cascades(sql) == expected
