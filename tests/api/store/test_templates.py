"""Templates in the store, and the file that takes them to another store."""

from __future__ import annotations

import hashlib
import io
import struct
import threading
from pathlib import Path

import pytest

from api.errors import CorruptStoreError, TemplateFileError
from api.store import ImportCounts, Store
from api.store.template_file import MAX_CONTENT_BYTES, MAX_HEADER_BYTES, TemplateHeader, read_templates
from planner.errors import NotFoundError
from tests.api.store.backends import JOB_SHA256, KEY, Backend, SqliteBackend, put_template

LONG_KEY = ",".join(["0"] * 4096) + ";" + ",".join(f"{slot}@700000" for slot in range(4096))
"""A failure key of 50 KB, longer than an index of PostgreSQL takes."""


def exported(store: Store, *job_sha256s: str) -> bytes:
    """The file of some jobs' templates."""
    stream = io.BytesIO()
    store.export_templates(job_sha256s or [JOB_SHA256], stream)
    return stream.getvalue()


def anything(_header: TemplateHeader, _content: bytes) -> None:
    """A check that lets every template in."""


def test_gives_back_what_was_stored(store: Store) -> None:
    """A template is there with everything that was given, under its key only; keys may be long."""
    for key in (KEY, LONG_KEY):
        record, is_new = put_template(store, failure_key=key)
        assert is_new
        assert store.template(JOB_SHA256, key) == record
        assert store.template_version(JOB_SHA256, key, record.sha256) == record
    assert record.sha256 == hashlib.sha256(b"packed plan").hexdigest()
    assert (record.period_ns, record.bound_ns, record.solver, record.deadline_s) == (100, 90, "list_scheduling", 1.5)
    assert store.template(JOB_SHA256, "0,0,0,0") is None
    assert store.template("b" * 64, KEY) is None
    with pytest.raises(NotFoundError):
        store.template_version(JOB_SHA256, KEY, "c" * 64)


def test_keeps_the_better_one(store: Store) -> None:
    """A smaller period replaces, a larger bound with the same period too; all else leaves what is there."""
    put_template(store, b"first")
    for content, period_ns, bound_ns, wins in (
        (b"worse", 101, 99, False),
        (b"same", 100, 90, False),
        (b"lower bound", 100, 80, False),
        (b"proof", 100, 95, True),
        (b"faster", 97, 90, True),
    ):
        best, is_new = put_template(store, content, period_ns=period_ns, bound_ns=bound_ns)
        assert is_new == wins
        assert (best.content == content) == wins
        assert store.template(JOB_SHA256, KEY) == best
    assert store.template_keys(JOB_SHA256) == {KEY: (97, 90, len(b"faster"))}


def test_lists_keys_without_their_contents(store: Store) -> None:
    """Each job hash has its own keys, each with the facts of its best template."""
    put_template(store, b"12345", failure_key="1,0")
    put_template(store, b"123456789", failure_key="0,1", period_ns=120, bound_ns=110)
    put_template(store, failure_key="0,1", job_sha256="b" * 64)
    assert store.template_keys(JOB_SHA256) == {"1,0": (100, 90, 5), "0,1": (120, 110, 9)}
    assert store.template_keys("c" * 64) == {}
    assert store.template_jobs() == (JOB_SHA256, "b" * 64)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("content", b"other"),
        ("period_ns", 1),
        ("bound_ns", 100),
        ("solver", "x"),
        ("deadline_s", 2.0),
        ("failure_key", "1"),
    ],
)
def test_damage_is_found_and_mended(store: Store, backend: Backend, column: str, value: object) -> None:
    """A damaged template is told from the stored one, dropped, and made again."""
    record, _ = put_template(store)
    backend.query(f"UPDATE templates SET {column} = ?", value)
    for read in (
        lambda: store.template(JOB_SHA256, KEY),
        lambda: store.template_version(JOB_SHA256, KEY, record.sha256),
    ):
        with pytest.raises(CorruptStoreError, match=r"failure key '0,0,1,0'"):
            read()
    assert store.drop_template(JOB_SHA256, KEY)
    assert not store.drop_template(JOB_SHA256, KEY)
    assert store.template(JOB_SHA256, KEY) is None
    assert put_template(store)[1]
    assert store.template(JOB_SHA256, KEY) is not None


def test_the_same_again_mends_damage(store: Store, backend: Backend) -> None:
    """A template that is made again just as it was takes the place of its damaged row."""
    put_template(store)
    backend.query("UPDATE templates SET content = ?", b"other")
    best, is_new = put_template(store)
    assert (best.content, is_new) == (b"packed plan", False)


def test_threads_leave_the_best(store: Store) -> None:
    """Whoever comes first, the best of many that are put at once is the one that stays."""
    threads = [
        threading.Thread(target=put_template, args=(store, b"%d" % period), kwargs={"period_ns": period})
        for period in (105, 101, 99, 104, 98, 103, 102, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    best = store.template(JOB_SHA256, KEY)
    assert best is not None
    assert best.content == b"98"


def test_a_file_takes_templates_to_another_store(store: Store, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is exported and imported is the same, better ones there stay, and only the jobs named go along."""
    put_template(store, b"better here")
    put_template(store, b"worse here", failure_key="1,0,0,0")
    put_template(store, b"\0" * 300_000, failure_key=LONG_KEY)
    put_template(store, job_sha256="b" * 64)
    file = exported(store)
    other = Store(str(tmp_path_factory.mktemp("other") / "replan.db"))
    put_template(other, b"worse there", period_ns=110)
    better, _ = put_template(other, b"better there", failure_key="1,0,0,0", period_ns=95)
    assert other.import_templates(io.BytesIO(file), anything) == ImportCounts(read=3, stored=2)
    assert other.import_templates(io.BytesIO(file), anything) == ImportCounts(read=3, stored=0)
    for key in (KEY, LONG_KEY):
        here, there = store.template(JOB_SHA256, key), other.template(JOB_SHA256, key)
        assert here is not None
        assert there is not None
        assert (here.content, here.period_ns, here.solver) == (there.content, there.period_ns, there.solver)
    assert other.template(JOB_SHA256, "1,0,0,0") == better
    assert other.template_jobs() == (JOB_SHA256,)
    other.close()


def test_a_damaged_file_stores_nothing(store: Store, backend: Backend) -> None:
    """Whatever byte is changed or where it is cut, the file is refused whole."""
    put_template(store)
    put_template(store, b"second", failure_key="1,0,0,0")
    file = exported(store)
    backend.query("DELETE FROM templates")
    damaged = [file[:length] for length in range(0, len(file), 3)]
    damaged += [file[:i] + bytes([file[i] ^ 1]) + file[i + 1 :] for i in range(0, len(file), 3)]
    damaged += [file + b"x", b"", b"PK\x03\x04", b"REPLAN-TEMPLATES " * 10_000]
    for data in damaged:
        with pytest.raises(TemplateFileError):
            store.import_templates(io.BytesIO(data), anything)
    assert store.template_jobs() == ()
    assert store.import_templates(io.BytesIO(file), anything).stored == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"REPLAN-TEMPLATES 2\n", "format version 2; this RePlan reads 1"),
        (b"REPLAN-TEMPLATES 1\n" + struct.pack(">I", MAX_HEADER_BYTES + 1), "a header of 1048577 bytes"),
        (b"REPLAN-TEMPLATES 1\n" + struct.pack(">I", 2) + b"{}", "job_sha256: Field required"),
        (b"some other file", "not a file of templates"),
    ],
)
def test_says_what_is_wrong_with_a_file(store: Store, data: bytes, message: str) -> None:
    """A newer version, a length beyond the limit and a wrong header are told apart."""
    with pytest.raises(TemplateFileError, match=message):
        store.import_templates(io.BytesIO(data), anything)


def test_a_file_cannot_ask_for_much_memory(store: Store) -> None:
    """A header that announces a large content is refused by the limit, or once the file ends, before it is kept."""
    put_template(store)
    file = exported(store)
    for size, message in ((MAX_CONTENT_BYTES, "ends in the middle"), (MAX_CONTENT_BYTES + 1, "size")):
        start = file.index(b"\n") + 1
        header = file[start + 4 : file.index(b"}") + 1].replace(b'"size":11', b'"size":%d' % size)
        with pytest.raises(TemplateFileError, match=message):
            store.import_templates(io.BytesIO(file[:start] + struct.pack(">I", len(header)) + header), anything)


def test_a_damaged_template_is_left_out_of_an_export(store: Store, backend: Backend) -> None:
    """Export writes the sound ones, says which ones are damaged."""
    put_template(store)
    put_template(store, failure_key="1,0,0,0")
    put_template(store, b"third", failure_key="0,1,0,0")
    backend.query("UPDATE templates SET content = ? WHERE failure_key = ?", b"other", KEY)
    backend.query("UPDATE templates SET failure_key = ? WHERE failure_key = ?", "9", "0,1,0,0")
    stream = io.BytesIO()
    counts = store.export_templates([JOB_SHA256], stream)
    assert counts.written == 1
    assert len(counts.damaged) == 2
    assert any(KEY in why for why in counts.damaged)
    stream.seek(0)
    assert [header.failure_key for header, _ in read_templates(stream)] == ["1,0,0,0"]


def test_damaged_templates_of_a_job_are_dropped(store: Store, backend: Backend) -> None:
    """All contents are read; what does not match its checksum goes, what is sound and what other jobs have stays."""
    put_template(store)
    put_template(store, failure_key="1,0,0,0")
    put_template(store, job_sha256="b" * 64)
    assert store.drop_damaged_templates(JOB_SHA256) == ()
    backend.query("UPDATE templates SET content = ? WHERE failure_key = ?", b"other", KEY)
    (why,) = store.drop_damaged_templates(JOB_SHA256)
    assert KEY in why
    assert set(store.template_keys(JOB_SHA256)) == {"1,0,0,0"}
    assert store.template_jobs() == (JOB_SHA256, "b" * 64)


@pytest.mark.parametrize(("column", "value"), [("content", b"other"), ("period_ns", 1), ("solver", "x")])
def test_a_damaged_template_keeps_no_other_out(store: Store, backend: Backend, column: str, value: object) -> None:
    """Another plan takes the damaged one's place, even where that says of itself that it is better."""
    put_template(store, b"damaged", period_ns=95)
    backend.query(f"UPDATE templates SET {column} = ?", value)
    best, _ = put_template(store, b"sound")
    assert best.content == b"sound"
    assert store.template(JOB_SHA256, KEY) == best
    assert backend.query("SELECT count(*) FROM templates") == [(1,)]


@pytest.mark.parametrize(
    "damage",
    [
        "content = CAST(content AS TEXT)",
        "content = 7",
        "content = 0.5",
        "solver = CAST(x'80ff' AS TEXT)",
        "failure_key = CAST(x'80ff' AS TEXT)",
        "period_ns = 'x'",
        "period_ns = x'80ff'",
        "deadline_s = x'80ff'",
        "checksum = CAST(x'80ff' AS TEXT)",
    ],
)
def test_damage_that_changes_a_type_is_recognised(tmp_path: Path, damage: str) -> None:
    """A value that SQLite reads as one of another kind, or as text that is none, is damage as any other."""
    backend = SqliteBackend(tmp_path / "replan.db")
    store = Store(backend.url)
    try:
        put_template(store, b"\x80\xff\x00")
        put_template(store, failure_key="1,0,0,0")
        backend.query(f"UPDATE templates SET {damage} WHERE failure_key = ?", KEY)
        with pytest.raises(CorruptStoreError) as caught:
            store.template(JOB_SHA256, KEY)
        assert str(caught.value).isprintable()
        assert set(store.template_keys(JOB_SHA256)) - {KEY} == {"1,0,0,0"}
        assert store.export_templates([JOB_SHA256], io.BytesIO()).written == 1
        (why,) = store.drop_damaged_templates(JOB_SHA256)
        assert why.isprintable()
        assert put_template(store)[1]
        assert store.template(JOB_SHA256, KEY) is not None
    finally:
        store.close()


def test_a_time_that_is_none_is_read(tmp_path: Path) -> None:
    """A damaged time keeps nobody from a template that is sound otherwise."""
    backend = SqliteBackend(tmp_path / "replan.db")
    store = Store(backend.url)
    try:
        put_template(store)
        backend.query("UPDATE templates SET created_at = 'x'")
        assert store.template(JOB_SHA256, KEY) is not None
    finally:
        store.close()
