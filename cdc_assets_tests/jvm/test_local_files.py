"""The class by which Java writes local files: made once, of its source, and used where it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

from cdc_assets.jvm import jars
from cdc_assets.jvm.jars import LOCAL_FILES, local_files_jars, make_local_files


def test_the_jar_is_made_once_and_has_the_classes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "share_dirs", lambda: (tmp_path,))
    monkeypatch.setattr(jars, "writable_share_dir", lambda: tmp_path)
    assert local_files_jars() == []
    make_local_files(spark._jvm)
    (jar,) = local_files_jars()
    with ZipFile(jar) as made:
        assert sorted(made.namelist()) == ["cdc_assets/LocalFiles$Plain.class", "cdc_assets/LocalFiles.class"]
    before = jar.stat()
    make_local_files(spark._jvm)
    assert [path.name for path in jar.parent.iterdir()] == [jar.name]
    assert jar.stat() == before


def test_a_session_writes_local_files_by_it(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    assert jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).getClass().getName() == LOCAL_FILES
