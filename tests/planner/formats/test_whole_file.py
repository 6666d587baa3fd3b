"""Files that appear whole or not at all, and what is no regular file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.formats.whole_file import whole_file, write_whole


def test_a_file_appears_with_its_content(tmp_path: Path) -> None:
    """A new file has the permissions that the umask leaves, and nothing lies beside it."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "plan", b"content")
    finally:
        os.umask(before)
    assert (tmp_path / "plan").read_bytes() == b"content"
    assert stat.S_IMODE((tmp_path / "plan").stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_permissions_of_a_file_that_is_there_stay(tmp_path: Path) -> None:
    """What was readable by its owner alone does not become readable by all."""
    (tmp_path / "plan").write_bytes(b"old")
    (tmp_path / "plan").chmod(0o600)
    write_whole(tmp_path / "plan", b"new")
    assert (tmp_path / "plan").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "plan").stat().st_mode) == 0o600


def test_an_error_on_the_way_leaves_what_was_there(tmp_path: Path) -> None:
    """Neither half a file nor a temporary one remains."""

    def half() -> None:
        with whole_file(tmp_path / "plan") as file:
            file.write(b"half")
            raise RuntimeError("on the way")

    (tmp_path / "plan").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="on the way"):
        half()
    assert (tmp_path / "plan").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path, exists: bool) -> None:
    """Also where the target is not there yet."""
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    if exists:
        target.write_bytes(b"old")
    (tmp_path / "link").symlink_to(target)
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """Whoever reads the named pipe gets the content."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"content")
    reader.join()
    assert got == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    """A device that is always full, made here so that the machine's own is not at risk, refuses; it is a device still."""
    device = tmp_path / "full"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        device.open("wb").close()
    except PermissionError:
        pytest.skip("only a privileged user may make and open devices")
    with pytest.raises(InputError, match="No space left on device"):
        write_whole(device, b"content")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_what_stands_for_an_open_file_is_written_in_place(tmp_path: Path) -> None:
    """``/dev/stdout`` after ``> file`` is that file, which is not swapped from under whoever opened it."""
    with (tmp_path / "output").open("wb") as output:
        write_whole(Path(f"/proc/self/fd/{output.fileno()}"), b"content")
        assert (tmp_path / "output").stat().st_ino == os.fstat(output.fileno()).st_ino
    assert (tmp_path / "output").read_bytes() == b"content"


@pytest.mark.parametrize("name", ["none/plan", ".", "x" * 300])
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    """A missing folder, a folder and a name that is too long."""
    with pytest.raises(InputError, match="cannot write"):
        write_whole(tmp_path / name, b"content")
