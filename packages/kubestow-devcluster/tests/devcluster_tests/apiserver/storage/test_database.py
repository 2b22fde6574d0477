"""The database file: it contains what the store contains, and files of other programs are never modified."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.errors import InputError
from kubestow_devcluster.apiserver.storage.database import Database, SelectableFields
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject

TEXT = st.text(max_size=5)
KEYS = st.tuples(st.sampled_from(["pods", "nodes", "deployments.apps"]), st.sampled_from(["a/x", "a/y", "ü", "n"]))
OBJECTS = st.tuples(st.binary(max_size=9), st.dictionaries(TEXT, TEXT, max_size=3), st.lists(TEXT, max_size=3))
WRITES = st.tuples(KEYS, st.none() | OBJECTS)


def all_objects(store: Store) -> dict[str, list[StoredObject]]:
    return {resource: store.collection(resource).snapshot() for resource, count in store.counts().items() if count}


def write(store: Store, resource: str, key: str, content: tuple[bytes, dict[str, str], list[str]] | None) -> bool:
    """Write an object, or delete it without content; returns whether anything changed."""
    if content is not None:
        data, labels, fields = content
        store.put(resource, StoredObject(key, store.next_resource_version, data, labels, tuple(fields)))
    elif store.collection(resource).get(key) is not None:
        store.delete(resource, StoredObject(key, store.next_resource_version, b"", {}))
    else:
        return False
    return True


@settings(max_examples=25)
@given(groups=st.lists(st.lists(WRITES, max_size=8), max_size=4))
def test_a_loaded_store_equals_the_one_that_was_saved(groups: list[list[tuple[tuple[str, str], None]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store()
        for group in groups:
            database = Database(Path(directory))
            assert all_objects(database.load({})) == all_objects(store)
            changed = [(resource, key) for (resource, key), content in group if write(store, resource, key, content)]
            writes = {(resource, key): store.collection(resource).get(key) for resource, key in changed}
            database.write(writes, store.resource_version)
            database.commit(store.resource_version)
            database.close()
        database = Database(Path(directory))
        loaded = database.load({})
        database.close()
    assert (all_objects(loaded), loaded.resource_version) == (all_objects(store), store.resource_version)


def test_fields_that_become_selectable_are_read_from_the_stored_objects(tmp_path: Path) -> None:
    database = Database(tmp_path)
    store = database.load({"pods": SelectableFields(("size",), lambda data: (str(len(data)),))})
    store.put("pods", StoredObject("a/x", 1, b"12345", {}, ("5",)))
    database.write({("pods", "a/x"): store.collection("pods").get("a/x")}, 1)
    database.commit(1)
    database.close()
    changed = {"pods": SelectableFields(("first", "size"), lambda data: (chr(data[0]), str(len(data))))}
    for _ in range(2):
        database = Database(tmp_path)
        assert [one.fields for one in database.load(changed).collection("pods").snapshot()] == [("1", "5")]
        database.close()


def test_an_uncommitted_transaction_is_rolled_back(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.write({("pods", "a/x"): StoredObject("a/x", 1, b"{}", {})}, 1)
    database.close()
    again = Database(tmp_path)
    assert (again.resource_version, again.load({}).counts()) == (0, {})
    again.close()


def text_file(path: Path) -> None:
    path.write_text("shopping list\n" * 200)


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def newer_format(path: Path) -> None:
    Database(path.parent).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def empty_state_table(path: Path) -> None:
    Database(path.parent).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM state")
    connection.close()


def damaged_pages(path: Path) -> None:
    database = Database(path.parent)
    database.write({("pods", f"a/{n}"): StoredObject(f"a/{n}", 1, b"x" * 3000, {}) for n in range(50)}, 1)
    database.commit(1)
    database.close()
    content = bytearray(path.read_bytes())
    content[4096:20480] = b"\xa5" * 16384
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make_unusable", "problem"),
    [
        (text_file, "is not a database; name another directory"),
        (other_database, "is the database of another program; name another directory"),
        (newer_format, "has format 99; this version of kubestow reads format 2"),
        (empty_state_table, "is damaged and left unchanged: the state table is empty"),
        (damaged_pages, "is damaged and left unchanged"),
    ],
)
def test_an_unusable_file_is_a_one_line_error_and_left_unchanged(
    tmp_path: Path, make_unusable: Callable[[Path], None], problem: str
) -> None:
    path = tmp_path / "kubestow.db"
    make_unusable(path)
    before = path.read_bytes()
    with pytest.raises(InputError) as error:
        Database(tmp_path)
    assert str(error.value).startswith(f"{path}: {problem}") and "\n" not in str(error.value)
    assert path.read_bytes() == before


def test_two_servers_cannot_use_one_directory(tmp_path: Path) -> None:
    first = Database(tmp_path)
    with pytest.raises(InputError, match="is in use by another process"):
        Database(tmp_path)
    first.close()
    Database(tmp_path).close()


def test_an_unusable_directory_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/data: cannot store a cluster here: Not a directory"):
        Database(tmp_path / "file" / "data")


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    database = Database(tmp_path / "data")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    assert set(modes.values()) == {0o600} and (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    database.close()
