"""A save is all or nothing, whatever fails and whoever is killed; only regular files are read or replaced.

Long because there are many ways to be interrupted, and each needs a program to interrupt.
"""

import contextlib
import errno
import os
import random
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from file_cases import TracedOs, assert_holds, assert_same, example, python, save_example

from manyclass import _atomic_file as atomic
from manyclass._section_file import read_sections, write_sections
from manyclass.errors import FileError

KILL_ROUNDS = int(os.environ.get("MANYCLASS_KILL_ROUNDS", "40"))
posix_only = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals, locks or permissions")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "example.mc"


@posix_only
def test_only_regular_files_are_read_or_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for special in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        for mmap in (False, True):
            with pytest.raises(FileError, match="not a regular file"):
                read_sections(special, "test", mmap=mmap)
        with pytest.raises(FileError, match="not a regular file"):
            write_sections(special, "test", {}, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def calls_of_one_save(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with monkeypatch.context() as patch:
        traced = TracedOs()
        patch.setattr(atomic, "os", traced)
        save_example(path)
    return [name for name, _ in traced.calls]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_error_at_any_call_leaves_the_old_file_and_no_litter(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_example(path, 1)
    names = calls_of_one_save(path, monkeypatch)
    assert set(names) == set(TracedOs.names)
    replaced = names.index("replace")
    for failing in range(len(names)):
        save_example(path, 1)
        count = -1

        def fail(name: str, failing: int = failing) -> None:
            nonlocal count
            count += 1
            if count == failing:
                raise OSError(code, f"injected into {name}")

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "os", TracedOs(fail))
            with pytest.raises(OSError, match="injected") as caught:
                save_example(path, 2)
        assert caught.value.errno == code
        assert_holds(path, 1 if failing <= replaced else 2)
        assert list(path.parent.iterdir()) == [path]


def test_an_interrupt_leaves_the_old_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_example(path, 1)

    def interrupt(name: str) -> None:
        if name == "lseek":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", TracedOs(interrupt))
        with pytest.raises(KeyboardInterrupt):
            save_example(path, 2)
    assert_holds(path, 1)
    assert list(path.parent.iterdir()) == [path]


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortOs(TracedOs):
        def write(self, file: int, content: memoryview) -> int:
            return os.write(file, content[:7])

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", ShortOs())
        save_example(path, 3)
    assert_holds(path, 3)


def test_data_is_synced_before_the_name_and_the_name_before_the_return(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killing a process cannot show this: what was written survives it even unsynced."""
    save_example(path)
    names = calls_of_one_save(path, monkeypatch)
    last_change = max(i for i, name in enumerate(names) if name in ("write", "chmod"))
    first_sync, second_sync = (i for i, name in enumerate(names) if name == "fsync")
    assert last_change < first_sync < names.index("replace") < second_sync


def test_a_file_system_without_directory_sync_is_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0

    def refuse(name: str) -> None:
        nonlocal syncs
        syncs += name == "fsync"
        if name == "fsync" and syncs == 2:
            raise OSError(errno.EINVAL, "no such operation")

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", TracedOs(refuse))
        save_example(path, 4)
    assert syncs == 2
    assert_holds(path, 4)


def test_saving_works_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "fcntl", None)
    save_example(path, 1)
    save_example(path, 2)
    assert_holds(path, 2)
    assert list(path.parent.iterdir()) == [path]


@posix_only
def test_killed_at_any_call_the_file_is_old_or_new_and_the_next_save_tidies_up(path: Path) -> None:
    program = """
        import os, signal, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        import file_cases as t
        from manyclass import _atomic_file as atomic
        path, step = Path(sys.argv[1]), 0
        t.save_example(path, 1)
        litter = finished = 0
        while not finished:
            child = os.fork()
            if child == 0:
                calls = 0
                def die(name):
                    global calls
                    calls += 1
                    if calls > step:
                        os.kill(os.getpid(), signal.SIGKILL)
                atomic.os = t.TracedOs(die)
                t.save_example(path, 2)
                os._exit(0)
            finished = os.waitpid(child, 0)[1] == 0
            value = t.read_sections(path, "test")[0]["value"]
            t.assert_holds(path, value)
            assert value in (1, 2)
            assert value == 2 or not finished
            litter += len(list(path.parent.iterdir())) - 1
            t.save_example(path, 1)
            assert list(path.parent.iterdir()) == [path]
            step += 1
        print(step, litter)
    """
    process = python(program, path, Path(__file__).parent)
    output = process.communicate()[0]
    assert process.returncode == 0
    steps, litter = map(int, output.split())
    assert steps > 10
    assert litter > 5


SAVER = """
    import itertools, sys
    import numpy as np
    from manyclass import _section_file as files
    files._CHUNK = 1 << 16
    path, first = sys.argv[1], int(sys.argv[2])
    for value in itertools.count(first):
        size = 300_000 if value % 2 else 200_000
        files.write_sections(path, "test", {"value": value}, {"a": np.full(size, value, "<u4")})
        print(value, flush=True)
"""


@posix_only
def test_killed_at_any_moment_the_file_holds_the_last_acknowledged_state_or_the_next(path: Path) -> None:
    chance = random.Random(0)
    value = litter = 0
    for _ in range(KILL_ROUNDS):
        process = python(SAVER, path, value + 1)
        assert process.stdout is not None
        acknowledged = int(process.stdout.readline())
        time.sleep(chance.uniform(0, 0.03))
        process.kill()
        rest = process.communicate()[0]
        acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
        meta, arrays = read_sections(path, "test")
        value = meta["value"]
        assert value in (acknowledged, acknowledged + 1)
        np.testing.assert_array_equal(arrays["a"], np.full(300_000 if value % 2 else 200_000, value))
        litter += len(list(path.parent.iterdir())) - 1
        write_sections(path, "test", meta, arrays)
        assert list(path.parent.iterdir()) == [path]
    assert litter > 0 or KILL_ROUNDS < 20  # otherwise no kill hit the middle of a save and nothing was tested


@posix_only
def test_processes_saving_one_path_at_once_never_corrupt_it(path: Path) -> None:
    program = """
        import sys
        import numpy as np
        from manyclass import _section_file as files
        files._CHUNK = 1 << 12
        for value in range(40):
            array = np.full(10_000 * int(sys.argv[2]), value, "<u4")
            meta = {"writer": int(sys.argv[2]), "value": value}
            files.write_sections(sys.argv[1], "test", meta, {"a": array})
    """
    write_sections(path, "test", {"writer": 1, "value": 0}, {"a": np.zeros(10_000, "<u4")})
    writers = [python(program, path, number) for number in (1, 2)]
    while any(writer.poll() is None for writer in writers):
        meta, arrays = read_sections(path, "test")
        np.testing.assert_array_equal(arrays["a"], np.full(10_000 * meta["writer"], meta["value"]))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert read_sections(path, "test")[0]["value"] == 39
    assert list(path.parent.iterdir()) == [path]
    for writer in writers:
        writer.communicate()


def test_threads_saving_one_path_at_once_never_corrupt_it(path: Path) -> None:
    errors: list[BaseException] = []

    def save_many(first: int) -> None:
        try:
            for value in range(first, first + 30):
                write_sections(path, "test", {"value": value}, example(value))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save_many, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_holds(path, read_sections(path, "test")[0]["value"])
    assert list(path.parent.iterdir()) == [path]


@posix_only
def test_a_temporary_file_is_removed_only_if_it_is_ours_and_nobody_writes_it(path: Path) -> None:
    name = f".{path.name}.{'0' * 16}{atomic._TEMP_SUFFIX}"
    abandoned, in_use = path.with_name(name), path.with_name(name.replace("0", "1"))
    foreign = [path.with_name(other) for other in (name + "x", name[1:], name.replace(".mc", ".mc.mc"))]
    for file in (abandoned, in_use, *foreign):
        file.write_bytes(b"half a file")
    with in_use.open("r+b") as writer:
        assert atomic._try_lock(writer.fileno())
        save_example(path)
        assert set(path.parent.iterdir()) == {path, in_use, *foreign}
    save_example(path)
    assert set(path.parent.iterdir()) == {path, *foreign}


@posix_only
def test_a_writer_whose_new_file_is_taken_for_abandoned_starts_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another save may tidy up between the creation of the temporary file and its locking."""
    lock = atomic._try_lock
    stolen: list[Path] = []

    def lock_too_late(file: int) -> bool | None:
        if len(stolen) < 2:
            stolen.extend(path.parent.glob(f".*{atomic._TEMP_SUFFIX}"))
            stolen[-1].unlink()
        return lock(file)

    monkeypatch.setattr(atomic, "_try_lock", lock_too_late)
    save_example(path, 5)
    assert len(stolen) == 2
    assert_holds(path, 5)
    assert list(path.parent.iterdir()) == [path]


def test_saving_over_a_mapped_file_leaves_the_mapping_intact(path: Path) -> None:
    save_example(path, 1)
    mapped = read_sections(path, "test", mmap=True)[1]
    write_sections(path, "test", {}, {})
    save_example(path, 2)
    assert_same(mapped, example(1))
    assert_holds(path, 2)
    write_sections(path, "test", {"value": 1}, mapped)  # even from the mapping itself
    assert_holds(path, 1)


@posix_only
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666, 0o444])
def test_permission_bits_are_kept(path: Path, mode: int) -> None:
    save_example(path, 1)
    path.chmod(mode)
    save_example(path, 2)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert_holds(path, 2)


@posix_only
def test_a_new_file_gets_the_usual_permission_bits(path: Path) -> None:
    save_example(path)
    (path.parent / "usual").touch()
    assert path.stat().st_mode == (path.parent / "usual").stat().st_mode


@posix_only
def test_a_private_file_is_never_readable_by_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_example(path)
    path.chmod(0o600)
    modes: set[int] = set()

    def look(name: str) -> None:
        modes.update(stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir())

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", TracedOs(look))
        save_example(path)
    assert modes == {0o600}


@posix_only
def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real/file")
    for value in (1, 2):  # first dangling, then leading to a file
        save_example(link, value)
        assert link.is_symlink()
        assert_holds(tmp_path / "real" / "file", value)
    assert [entry.name for entry in (tmp_path / "real").iterdir()] == ["file"]
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="symbolic link"):
        save_example(loop)
    assert loop.is_symlink()


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up root's power to ignore permissions, if we have it."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@posix_only
def test_a_read_only_directory_gives_the_ordinary_error_and_changes_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which only its owner may enter
        path = Path(folder) / "example.mc"
        save_example(path, 1)
        path.parent.chmod(0o555)
        try:
            with ordinary_user(), pytest.raises(PermissionError):
                save_example(path, 2)
            assert_holds(path, 1)
            assert list(path.parent.iterdir()) == [path]
        finally:
            path.parent.chmod(0o700)


def test_relative_paths_and_strings_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sections("here.mc", "test", {"value": 1}, example(1))
    assert_holds(Path("here.mc"), 1)
