"""Archives made to do harm: each is refused, nothing is written outside, and nothing large is unpacked."""

from __future__ import annotations

import random
import shutil
import struct
import warnings
import zipfile

import pytest
from tests.toolchain.inspect import binaries

from sage_attention import DataError
from sage_attention.toolchain.inspect.archive import unpack


def archive(tmp_path, members, **options):
    path = tmp_path / "a.zip"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the names we want twice
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as opened:
            for name, data in members:
                opened.writestr(name, data)
    return path


def unpacked(tmp_path, path):
    out = tmp_path / "out"
    out.mkdir()
    names = unpack(path, out)
    return names, sorted(found.relative_to(out).as_posix() for found in out.rglob("*") if found.is_file())


def test_only_what_is_looked_at_is_unpacked(tmp_path):
    dll = binaries.pe({}, ["f"])
    members = [
        ("a/__init__.py", "x = 1"), ("a/a.dll", dll), ("a/data.bin", b"x" * 1000), ("a/tool", dll),
        ("a/text", "y" * 100),        ("a-1.dist-info/METADATA", "Name: a"),
    ]  # fmt: skip
    names, files = unpacked(tmp_path, archive(tmp_path, members))
    assert len(names) == len(members)
    assert files == ["a-1.dist-info/METADATA", "a/__init__.py", "a/a.dll", "a/tool"]


@pytest.mark.parametrize("name", ["../evil.dll", "/etc/evil.dll", "a/../../evil.dll", "C:/evil.dll", "a\\..\\evil.dll"])
def test_members_outside(tmp_path, name):
    path = archive(tmp_path, [(name.replace("\\", "/"), b"MZ")])
    if "\\" in name:  # zipfile itself writes slashes
        path.write_bytes(path.read_bytes().replace(name.replace("\\", "/").encode(), name.encode()))
    with pytest.raises(DataError, match="inside the archive's own folder"):
        unpacked(tmp_path, path)
    assert not list(tmp_path.rglob("evil.dll"))


def test_a_bomb(tmp_path):
    path = archive(tmp_path, [("a.dll", bytes(100 << 20))])
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="times its compressed size"):
        unpacked(tmp_path, path)


def test_members_that_share_their_bytes(tmp_path):
    """The central directory names one member many times under different names."""
    path = archive(tmp_path, [("a.dll", b"MZ" + bytes(range(256)) * 50)])
    data = path.read_bytes()
    start = data.index(b"PK\1\2")
    row = data[start : data.index(b"PK\5\6")]
    rows = b"".join(row.replace(b"a.dll", b"%c.dll" % letter) for letter in b"abcdefghij")
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 10, 10, len(rows), start, 0)
    path.write_bytes(data[:start] + rows + end)
    with pytest.raises(DataError, match=r"overlap|can be read"):
        unpacked(tmp_path, path)


def test_a_lie_about_the_size(tmp_path):
    path = archive(tmp_path, [("a.dll", b"MZ" + bytes(100_000))])
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\1\2")
    struct.pack_into("<I", data, start + 24, 50)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip"):
        unpacked(tmp_path, path)


def test_same_name_twice(tmp_path):
    with pytest.raises(DataError, match="each member once"):
        unpacked(tmp_path, archive(tmp_path, [("a.dll", b"MZ1"), ("a.dll", b"MZ2")]))


def test_a_link(tmp_path):
    info = zipfile.ZipInfo("a.dll")
    info.external_attr = 0o120777 << 16
    with pytest.raises(DataError, match="no symbolic links"):
        unpacked(tmp_path, archive(tmp_path, [(info, "/etc/passwd")]))


def test_encrypted(tmp_path):
    path = archive(tmp_path, [("a.dll", b"MZ" + bytes(100))])
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + place] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="not encrypted"):
        unpacked(tmp_path, path)


@pytest.mark.parametrize("cut", [0, 1, 30, 100, -1, -10])
def test_cut_off(tmp_path, cut):
    path = archive(tmp_path, [("a.dll", bytes(range(256)) * 4), ("b.dll", bytes(range(256)) * 4)])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"a\.zip"):
        unpacked(tmp_path, path)


def test_damaged_inside(tmp_path):
    path = archive(tmp_path, [("a.dll", bytes(range(256)) * 4)])
    data = bytearray(path.read_bytes())
    data[45:60] = bytes(15)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip"):
        unpacked(tmp_path, path)


def test_member_without_a_name(tmp_path):
    path = archive(tmp_path, [("a.dll", b"MZ" + bytes(100))])
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\1\2")
    struct.pack_into("<H", data, place + 28, 0)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip"):
        unpacked(tmp_path, path)


def test_changed_archives(tmp_path):
    """Whatever is changed: unpacked or refused, and nothing appears outside the folder."""
    whole = archive(tmp_path, [("a.dll", b"MZ" + bytes(range(200))), ("b.py", "x = 1")]).read_bytes()
    rng = random.Random(3)
    path, out = tmp_path / "a.zip", tmp_path / "out"

    def outcome():
        data = bytearray(whole)
        for _ in range(rng.choice((1, 2, 5))):
            place = rng.randrange(len(data))
            data[place : place + rng.choice((1, 2, 4))] = rng.choice(
                (b"\0", b"\xff\xff", b"/", bytes([rng.randrange(256)]))
            )
        path.write_bytes(data)
        out.mkdir()
        try:
            return bool(unpack(path, out))
        except DataError:
            return False
        finally:
            shutil.rmtree(out)

    results = [outcome() for _ in range(1500)]
    assert True in results
    assert False in results
    assert [found.name for found in tmp_path.iterdir()] == ["a.zip"]
