"""The file a cluster is kept in: it holds what memory holds, and only ever files of ours are touched."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.devcluster.apiserver.storage.database import Database, SelectableFields
from kubestow.devcluster.apiserver.storage.store import Store, StoredObject
from kubestow.errors import InputError

TEXT = st.text(max_size=5)
PLACES = st.tuples(st.sampled_from(["pods", "nodes", "deployments.apps"]), st.sampled_from(["a/x", "a/y", "ü", "n"]))
CONTENT = st.tuples(st.binary(max_size=9), st.dictionaries(TEXT, TEXT, max_size=3), st.lists(TEXT, max_size=3))
WRITES = st.tuples(PLACES, st.none() | CONTENT)


def everything(store: Store) -> dict[str, list[StoredObject]]:
    return {resource: store.collection(resource).snapshot() for resource, count in store.counts().items() if count}


def apply(store: Store, place: tuple[str, str], content: tuple[bytes, dict[str, str], list[str]] | None) -> bool:
    """Write or, without content, delete an object; whether there was anything to do."""
    resource, key = place
    if content is not None:
        data, labels, fields = content
        store.put(resource, StoredObject(key, store.next_resource_version, data, labels, tuple(fields)))
    elif store.collection(resource).get(key) is not None:
        store.delete(resource, StoredObject(key, store.next_resource_version, b"", {}))
    else:
        return False
    return True


@settings(max_examples=25, deadline=None)
@given(groups=st.lists(st.lists(WRITES, max_size=8), max_size=4))
def test_what_is_loaded_equals_what_was_in_memory(groups: list[list[tuple[tuple[str, str], None]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store()
        for group in groups:
            database = Database(Path(directory))
            assert everything(database.load({})) == everything(store)
            changed = [place for place, content in group if apply(store, place, content)]
            changes = {(resource, key): store.collection(resource).get(key) for resource, key in changed}
            database.write(changes, store.resource_version)
            database.commit(store.resource_version)
            database.close()
        database = Database(Path(directory))
        loaded = database.load({})
        database.close()
    assert (everything(loaded), loaded.resource_version) == (everything(store), store.resource_version)


def test_fields_that_have_become_selectable_are_read_from_what_is_kept(tmp_path: Path) -> None:
    database = Database(tmp_path)
    store = database.load({"pods": SelectableFields(("size",), lambda data: (str(len(data)),))})
    store.put("pods", StoredObject("a/x", 1, b"12345", {}, ("5",)))
    database.write({("pods", "a/x"): store.collection("pods").get("a/x")}, 1)
    database.commit(1)
    database.close()
    later = {"pods": SelectableFields(("first", "size"), lambda data: (chr(data[0]), str(len(data))))}
    for layouts in (later, later):
        database = Database(tmp_path)
        assert [one.fields for one in database.load(layouts).collection("pods").snapshot()] == [("1", "5")]
        database.close()


def test_what_was_not_committed_has_never_been(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.write({("pods", "a/x"): StoredObject("a/x", 1, b"{}", {})}, 1)
    database.close()
    again = Database(tmp_path)
    assert (again.resource_version, again.load({}).counts()) == (0, {})
    again.close()


def text_file(path: Path) -> None:
    path.write_text("shopping list\n" * 200)


def database_of_another(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def format_to_come(path: Path) -> None:
    Database(path.parent).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def emptied(path: Path) -> None:
    Database(path.parent).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM state")
    connection.close()


def damaged(path: Path) -> None:
    database = Database(path.parent)
    database.write({("pods", f"a/{n}"): StoredObject(f"a/{n}", 1, b"x" * 3000, {}) for n in range(50)}, 1)
    database.commit(1)
    database.close()
    content = bytearray(path.read_bytes())
    content[4096:20480] = b"\xa5" * 16384
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (text_file, "is not a database; name another directory"),
        (database_of_another, "is the database of another program; name another directory"),
        (format_to_come, "has format 99; this version of kubestow reads format 1"),
        (emptied, "is damaged and left unchanged: the state table is empty"),
        (damaged, "is damaged and left unchanged"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None], problem: str
) -> None:
    path = tmp_path / "kubestow.db"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(InputError) as refused:
        Database(tmp_path)
    assert str(refused.value).startswith(f"{path}: {problem}") and "\n" not in str(refused.value)
    assert path.read_bytes() == before


def test_two_servers_cannot_have_one_directory(tmp_path: Path) -> None:
    first = Database(tmp_path)
    with pytest.raises(InputError, match="is in use by another process"):
        Database(tmp_path)
    first.close()
    Database(tmp_path).close()


def test_a_place_where_nothing_can_be_kept_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/data: cannot store a cluster here: Not a directory"):
        Database(tmp_path / "file" / "data")


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    database = Database(tmp_path / "data")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    assert set(modes.values()) == {0o600} and (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    database.close()
