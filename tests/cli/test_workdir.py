"""Packing a directory: what goes in, what stays out."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from penstock.cli.ui.workdir import ArchivePipe, ProgressBar, pack, walk
from penstock.errors import BadRequest, TooLarge


def tree(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def packed(directory: Path, limit: int | None = None) -> bytes:
    sent: list[bytes] = []
    entries = list(walk(directory))
    pack(entries, ArchivePipe(sent.append, directory, entries, limit), ProgressBar(directory, entries))
    return b"".join(sent)


def names(directory: Path) -> list[str]:
    return [entry.name for entry in walk(directory)]


def test_gitignore_counts_at_every_level_as_git_has_it(tmp_path):
    tree(
        tmp_path,
        {
            ".gitignore": "*.log\n/build/\n!keep.log\n__pycache__/\n",
            "train.py": "",
            "run.log": "",
            "keep.log": "",
            "build/out": "",
            "pkg/build/in": "",
            "pkg/__pycache__/x.pyc": "",
            "pkg/.gitignore": "!run.log\n*.tmp\n/data\n",
            "pkg/run.log": "",
            "pkg/a.tmp": "",
            "pkg/data/big": "",
            "pkg/deep/data/small": "",
        },
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    listed = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    files = [name for name in names(tmp_path) if not (tmp_path / name).is_dir()]
    assert sorted(files) == sorted(listed.stdout.splitlines())
    assert "pkg/run.log" in files


def test_a_part_of_a_repository_keeps_to_the_rules_of_the_whole(tmp_path):
    tree(tmp_path, {".git/HEAD": "", ".gitignore": "*.ckpt\n", "code/a.py": "", "code/b.ckpt": ""})
    assert names(tmp_path / "code") == ["a.py"]


def test_git_itself_stays_out_wherever_it_is(tmp_path):
    tree(tmp_path, {".git/HEAD": "", "sub/.git": "gitdir: elsewhere", "sub/a.py": ""})
    assert names(tmp_path) == ["sub", "sub/a.py"]


def test_links_stay_links_and_what_is_no_file_stays_out(tmp_path):
    tree(tmp_path, {"a.py": "x"})
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path))) as archive:
        members = {member.name: member for member in archive}
    assert sorted(members) == ["a.py", "folder", "link"]
    assert members["link"].issym()
    assert members["link"].linkname == "/etc/passwd"
    assert members["folder"].issym()


def test_the_same_files_give_the_same_bytes_that_belong_to_nobody(tmp_path):
    tree(tmp_path, {"b/a.py": "print(1)\n", "a.sh": "echo\n", "ä ö": "x"})
    (tmp_path / "a.sh").chmod(0o4755)
    os.utime(tmp_path / "a.sh", (0, 1_000_000_000))
    first = packed(tmp_path)
    assert packed(tmp_path) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        member = archive.getmember("a.sh")
        assert (member.uid, member.gid, member.mode, member.mtime) == (0, 0, 0o755, 1_000_000_000)
        assert archive.getnames() == ["a.sh", "b", "b/a.py", "ä ö"]


def test_too_much_names_the_limit_and_the_largest(tmp_path):
    (tmp_path / "weights.bin").write_bytes(os.urandom(300_000))
    (tmp_path / "small.bin").write_bytes(os.urandom(2048))
    with pytest.raises(TooLarge) as caught:
        packed(tmp_path, limit=100 * 1024)
    assert caught.value.message == (
        f"The workdir {tmp_path} is over the limit of 100Ki, packed. Its largest: weights.bin (293Ki), small.bin (2Ki)."
    )
    assert caught.value.hint == "leave data out by .gitignore and put it in a volume"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    entries = list(walk(tree(tmp_path, {"a.py": ""})))
    (tmp_path / "a.py").unlink()
    with pytest.raises(BadRequest, match=r"a\.py cannot be sent: No such file or directory\."):
        pack(entries, ArchivePipe(lambda _: None, tmp_path, entries, None), ProgressBar(tmp_path, entries))


@pytest.mark.parametrize("name", ["a.py", "pkg/b.py"])
def test_a_file_that_was_exchanged_with_a_link_is_not_sent(tmp_path, name):
    """Somebody else who writes there could have put it in its place, or in that of its directory."""
    code = tree(tmp_path / "code", {"a.py": "", "pkg/b.py": ""})
    secret = tree(tmp_path / "secret", {"a.py": "the key", "b.py": "the key"})
    entries = [entry for entry in walk(code) if entry.name == name]
    if name == "a.py":
        (code / name).unlink()
        (code / name).symlink_to(secret / name)
        said = r"a\.py cannot be sent: Too many levels of symbolic links\."
    else:
        (code / "pkg").rename(code / "old")
        (code / "pkg").symlink_to(secret)
        said = r"b\.py cannot be sent: it was exchanged while it was read\."
    sent: list[bytes] = []
    with pytest.raises(BadRequest, match=said):
        pack(entries, ArchivePipe(sent.append, code, entries, None), ProgressBar(code, entries))
    assert b"the key" not in b"".join(sent)


def test_a_directory_that_is_exchanged_with_a_link_is_not_read(tmp_path):
    code = tree(tmp_path / "code", {"pkg/b.py": ""})
    secret = tree(tmp_path / "secret", {"id_ed25519": "the key"})
    found = walk(code)
    assert next(found).name == "pkg"
    (code / "pkg").rename(code / "old")
    (code / "pkg").symlink_to(secret)
    with pytest.raises(BadRequest, match=r"pkg cannot be read: "):
        next(found)
