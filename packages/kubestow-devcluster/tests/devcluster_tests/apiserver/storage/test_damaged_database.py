"""Damage to the files of a database: all acknowledged writes are there, or the start is refused."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from kubestow.errors import InputError
from kubestow_devcluster.apiserver.storage.database import Database
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject

FILE, LOG, ACKNOWLEDGED = "kubestow.db", "kubestow.db-wal", "kubestow.db-acknowledged"
PAGE = 4096


def commit(database: Database, versions: range) -> None:
    for version in versions:
        key = f"a/{version % 40}"
        stored = StoredObject(key, version, b"%d" % version * 300, {"version": str(version)})
        database.write({("pods", key): stored}, version)
        database.commit(version)


def contents(store: Store) -> list[StoredObject]:
    return store.collection("pods").snapshot()


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StoredObject]]:
    """The files of a server that was killed, with acknowledged writes in the database and in its log."""
    running, files = tmp_path_factory.mktemp("running"), tmp_path_factory.mktemp("files")
    database = Database(running)
    commit(database, range(1, 61))
    database.close()
    database = Database(running)
    shutil.copy(running / FILE, files / "old")
    commit(database, range(61, 121))
    for name in (FILE, LOG, ACKNOWLEDGED):
        if (running / name).exists():
            shutil.copy(running / name, files)
    database.close()
    database = Database(running)
    expected = contents(database.load({}))
    database.close()
    return files, expected


def is_lost(files: Path, directory: Path, expected: list[StoredObject], damage: Callable[[Path], None]) -> bool:
    """Whether a server starts with other content than was acknowledged, after damage to a copy of the files."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(files, directory)
    damage(directory)
    before = {name: (directory / name).read_bytes() for name in (FILE, LOG) if (directory / name).exists()}
    try:
        database = Database(directory)
    except InputError as error:
        assert "\n" not in str(error)
        assert before == {name: (directory / name).read_bytes() for name in before}
        return False
    try:
        store = database.load({})
    except InputError:
        return False
    database.close()
    return contents(store) != expected or store.resource_version != 120


def flipped(name: str, position: int, bit: int) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        content[position] ^= 1 << bit
        (directory / name).write_bytes(content)

    return damage


def cut(name: str, length: int) -> Callable[[Path], None]:
    return lambda directory: os.truncate(directory / name, length)


def torn(name: str, start: int, replacement: Callable[[Path], bytes]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        part = replacement(directory)
        content[start : start + len(part)] = part
        (directory / name).write_bytes(content)

    return damage


def old_page(start: int) -> Callable[[Path], bytes]:
    return lambda directory: (directory / "old").read_bytes()[start : start + PAGE]


def kinds_of_damage(files: Path, random: Random) -> Iterator[tuple[str, Callable[[Path], None]]]:
    for name in (FILE, LOG):
        size = (files / name).stat().st_size
        for _ in range(150):
            position, bit = random.randrange(size), random.randrange(8)
            yield f"{name}: bit {bit} of byte {position} flipped", flipped(name, position, bit)
        for _ in range(30):
            start = random.randrange(0, size, 512)
            yield f"{name}: sector at {start} zero", torn(name, start, lambda directory: bytes(512))
    log = (files / LOG).stat().st_size
    for _ in range(30):
        length = random.randrange(log)
        yield f"log cut at {length}", cut(LOG, length)


def test_acknowledged_writes_are_there_or_the_start_is_refused(
    tmp_path: Path, crashed: tuple[Path, list[StoredObject]]
) -> None:
    files, expected = crashed
    assert not is_lost(files, tmp_path / "intact", expected, lambda directory: None)
    damages = kinds_of_damage(files, Random(7))
    lost = [what for what, damage in damages if is_lost(files, tmp_path / "damaged", expected, damage)]
    assert not lost, (len(lost), lost[:5])


def test_pages_that_were_not_written_are_found(tmp_path: Path, crashed: tuple[Path, list[StoredObject]]) -> None:
    """The database after a checkpoint, with single pages as they were before it."""
    files, expected = crashed
    after = tmp_path / "after"
    shutil.copytree(files, after)
    Database(after).close()  # the log becomes part of the database
    old = (after / "old").stat().st_size
    damages = [torn(FILE, start, old_page(start)) for start in range(0, old, PAGE)]
    assert not [1 for damage in damages if is_lost(after, tmp_path / "damaged", expected, damage)]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda directory: (directory / LOG).unlink(),
            "is damaged and left unchanged: it ends at write 60, and write 120",
        ),
        (lambda directory: (directory / FILE).write_bytes(b""), "is empty, expected a database"),
        (lambda directory: (directory / FILE).unlink(), "is missing, and had acknowledged writes"),
        (lambda directory: shutil.copy(directory / "old", directory / FILE), ""),
        (lambda directory: (directory / ACKNOWLEDGED).write_bytes(b"0" * 29), "is damaged, expected the number"),
    ],
)
def test_a_loss_is_named(
    tmp_path: Path,
    crashed: tuple[Path, list[StoredObject]],
    damage: Callable[[Path], None],
    problem: str,
) -> None:
    directory = tmp_path / "files"
    shutil.copytree(crashed[0], directory)
    damage(directory)
    if not problem:  # an older database with its newer log is the whole one
        database = Database(directory)
        assert contents(database.load({})) == crashed[1]
        database.close()
        return
    with pytest.raises(InputError, match=problem):
        Database(directory)


def test_the_loss_of_writes_can_be_accepted(tmp_path: Path, crashed: tuple[Path, list[StoredObject]]) -> None:
    directory = tmp_path / "files"
    shutil.copytree(crashed[0], directory)
    (directory / LOG).unlink()
    with pytest.raises(InputError, match=f"remove {ACKNOWLEDGED} to accept the loss"):
        Database(directory)
    (directory / ACKNOWLEDGED).unlink()
    database = Database(directory)
    assert database.load({}).resource_version == 60
    database.close()


def test_a_file_without_checksums_gets_them(tmp_path: Path, crashed: tuple[Path, list[StoredObject]]) -> None:
    directory = tmp_path / "files"
    shutil.copytree(crashed[0], directory)
    Database(directory).close()
    with sqlite3.connect(directory / FILE) as connection:
        connection.execute("ALTER TABLE objects DROP COLUMN checksum")
        connection.execute("ALTER TABLE state DROP COLUMN total")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    (directory / ACKNOWLEDGED).unlink()
    for _ in range(2):
        database = Database(directory)
        assert contents(database.load({})) == crashed[1]
        database.close()
