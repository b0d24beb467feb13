"""The class-data archive: bound to Java and jars, whole or not there, and never in the way."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.jvm import class_data
from cdc_assets.jvm.class_data import class_data_options, make_class_data, quoted_option


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_data, "share_dirs", lambda: (tmp_path,))
    monkeypatch.setattr(class_data, "writable_share_dir", lambda: tmp_path)
    return tmp_path


def trained(written: bytes | None) -> Any:
    """A training run that writes an archive, or none."""

    def run(command: list[str], **_: Any) -> None:
        target = next(part for part in command if "ArchiveClassesAtExit=" in part).partition("=")[2]
        if written is not None:
            Path(target).write_bytes(written)

    return run


def test_without_an_archive_the_jvm_gets_no_option(place: Path) -> None:
    assert class_data_options() == []


def test_an_archive_is_made_once_and_used_from_then_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", trained(b"classes"))
    made = make_class_data()
    assert "--jars-only" in capsys.readouterr().err
    monkeypatch.setattr(subprocess, "run", trained(b"others"))
    assert make_class_data() == made
    assert made is not None
    assert made.read_bytes() == b"classes"
    assert class_data_options()[0] == f"-XX:SharedArchiveFile={made}"
    assert [path.name for path in (place / "class-data").iterdir()] == [made.name]


def test_an_archive_of_another_java_or_of_other_jars_is_not_used_and_makes_way(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "class-data").mkdir()
    (place / "class-data" / "0123.jsa").write_bytes(b"another Java's")
    assert class_data_options() == []
    monkeypatch.setattr(subprocess, "run", trained(b"classes"))
    make_class_data()
    assert not (place / "class-data" / "0123.jsa").exists()


def test_a_training_run_that_wrote_nothing_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", trained(None))
    assert make_class_data() is None
    assert list((place / "class-data").iterdir()) == []


def test_a_jvm_starts_with_an_archive_that_is_none(tmp_path: Path) -> None:
    from cdc_assets.jvm.java import find_java

    broken = tmp_path / "broken.jsa"
    broken.write_bytes(b"not an archive")
    command = [str(find_java() / "bin" / "java"), f"-XX:SharedArchiveFile={broken}", class_data._QUIET, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_naming_the_archive_loads_no_engine() -> None:
    program = "import sys, cdc_assets.jvm.class_data; print('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("directory", ["plain", "with space", 'a "quoted" one', "back\\slash"])
def test_an_option_with_any_path_is_one_option_to_sparks_launcher(directory: str) -> None:
    option = f"-XX:SharedArchiveFile=/{directory}/made.jsa"
    assert shlex.split(f"{quoted_option(option)} {quoted_option('-Xlog:disable')}") == [option, "-Xlog:disable"]
