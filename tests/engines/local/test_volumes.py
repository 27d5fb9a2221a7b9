"""Volumes as directories: what deleting and measuring them must not do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.domain.volumes import Phase
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.supervisor.directories import erase
from penstock.errors import Conflict, Invalid, Unavailable
from penstock.settings import Settings
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch, a_volume, the_account


async def test_deleting_a_volume_follows_no_link_out_of_it(
    engine: LocalEngine, settings: Settings, place: Path
) -> None:
    outside = place / "outside"
    outside.mkdir()
    (outside / "precious").write_text("data")
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    directory = settings.data_dir / "volumes" / volume.object_name
    (directory / "link").symlink_to(outside)
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "link").symlink_to(outside / "precious")
    os.link(outside / "precious", directory / "hard")
    await engine.delete_volume(volume)
    assert (outside / "precious").read_text() == "data"
    assert list((settings.data_dir / "volumes").iterdir()) == []


async def test_a_deletion_cut_short_is_finished_by_the_next(engine: LocalEngine, settings: Settings) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    directory = settings.data_dir / "volumes" / volume.object_name
    (directory / "sub").mkdir()
    directory.rename(directory.with_name(f".deleted-{volume.id}"))
    assert (await engine.volume_reports([volume]))[volume.id].phase is Phase.Lost
    await engine.delete_volume(volume)
    assert list((settings.data_dir / "volumes").iterdir()) == []


def test_everything_goes_however_deep_and_however_closed(place: Path) -> None:
    top = place / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for depth in range(800):
        os.mkdir(f"d{depth}", dir_fd=here)
        inner = os.open(f"d{depth}", os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o000, dir_fd=inner))
        os.fchmod(here, 0o000 if depth % 2 else 0o500)
        os.close(here)
        here = inner
    os.close(here)
    (place / "top2").mkdir()
    (place / "top2" / ".erase-1").write_text("in the way")
    (place / "top2" / "a" / "b").mkdir(parents=True)
    os.mkfifo(place / "top2" / "a" / "pipe")
    for name in ("top", "top2", "not-there"):
        erase(str(place / name))
    assert list(place.iterdir()) == []


async def test_usage_counts_a_file_of_two_names_once_and_nothing_outside(
    engine: LocalEngine, settings: Settings, place: Path
) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    directory = settings.data_dir / "volumes" / volume.object_name
    (place / "outside").write_bytes(b"x" * 9_000_000)
    (directory / "a").write_bytes(b"x" * 1_000_000)
    os.link(directory / "a", directory / "b")
    (directory / "link").symlink_to(place / "outside")
    (directory / "loop").symlink_to(directory)
    assert 1_000_000 <= await engine.volume_usage(volume) < 1_100_000


async def test_a_class_is_a_directory_of_the_admins(place: Path) -> None:
    settings = Settings(data_dir=place / "data", storage_classes={"fast": str(place / "fast")})
    async with opened(settings) as engine:
        volume = a_volume(storage_class="fast")
        await engine.create_volume(volume, the_account())
        directory = place / "fast" / volume.object_name
        assert directory.stat().st_uid == the_account().uid
        assert directory.stat().st_mode & 0o777 == 0o700
        assert [known.name for known in await engine.storage_classes()] == ["standard", "fast"]
        assert all(known.free_bytes for known in await engine.storage_classes())
        with pytest.raises(Invalid, match="There is no storage class 'slow'"):
            await engine.create_volume(a_volume(storage_class="slow"), the_account())


async def test_a_volume_whose_directory_is_gone_says_which(engine: LocalEngine, settings: Settings) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    directory = settings.data_dir / "volumes" / volume.object_name
    directory.rmdir()
    report = (await engine.volume_reports([volume]))[volume.id]
    assert (report.phase, report.message) == (Phase.Lost, f"The directory {directory} is gone.")
    with pytest.raises(Unavailable):
        await engine.volume_usage(volume)


# on a storage that a directory stands for


DATASET = {"storage": "zfs", "storage_class": "zfs", "group": "pwm.resource", "sub_path": "datasets/hmdb_ucf"}


def with_storage(place: Path) -> Settings:
    return Settings(data_dir=place / "data", storage_classes={"zfs": str(place / "zfs")})


async def test_the_path_on_a_storage_is_that_of_the_guide_and_what_is_there_is_found(place: Path) -> None:
    directory = place / "zfs" / "pwm.resource" / "datasets" / "hmdb_ucf"
    directory.mkdir(parents=True)
    (directory / "clip").write_text("there before")
    before = directory.stat()
    async with opened(with_storage(place)) as engine:
        dataset = a_volume("hmdb").model_copy(update=DATASET | {"readonly": True})
        home = a_volume("home").model_copy(update=DATASET | {"group": "alice", "sub_path": "home"})
        (place / "zfs" / "alice" / "home").mkdir(parents=True, mode=0o700)  # all that a crash left of its making
        for volume in (dataset, home):
            await engine.create_volume(volume, the_account())
            await engine.create_volume(volume, the_account())
            assert (await engine.volume_reports([volume]))[volume.id].phase is Phase.Bound
        assert (directory.stat().st_uid, directory.stat().st_mode) == (before.st_uid, before.st_mode)
        made = (place / "zfs" / "alice" / "home").stat()
        assert (made.st_uid, made.st_mode & 0o777) == (the_account().uid, 0o700)
        assert sorted(path.name for path in (place / "zfs").iterdir()) == ["alice", "pwm.resource"]
        await engine.delete_volume(dataset)
        await engine.delete_volume(home)
        assert (directory / "clip").read_text() == "there before"
        assert (place / "zfs" / "alice" / "home").is_dir()


@pytest.mark.parametrize("link", ["pwm.resource", "pwm.resource/datasets", "pwm.resource/datasets/hmdb_ucf"])
async def test_no_link_leads_out_of_the_directory_of_a_group(place: Path, link: str) -> None:
    other = place / "zfs" / "bob"
    (other / "datasets" / "hmdb_ucf").mkdir(parents=True)
    (place / "zfs" / link).parent.mkdir(parents=True, exist_ok=True)
    (place / "zfs" / link).symlink_to(other)
    said = f"leads through a link or file: {place / 'zfs' / link}"
    async with opened(with_storage(place)) as engine:
        volume = a_volume("hmdb").model_copy(update=DATASET)
        with pytest.raises(Conflict, match=said):
            await engine.create_volume(volume, the_account())
        report = (await engine.volume_reports([volume]))[volume.id]
        assert report.phase is Phase.Lost
        assert said in (report.message or "")
        with pytest.raises(Conflict, match=said):
            await engine.start(a_launch("true", {"/data": volume}))


async def test_one_that_was_made_elsewhere_before_stays_there_and_is_deleted_with_its_data(place: Path) -> None:
    volume = a_volume("home").model_copy(update=DATASET)
    (place / "zfs" / volume.object_name).mkdir(parents=True)
    async with opened(with_storage(place)) as engine:
        assert (await engine.volume_reports([volume]))[volume.id].phase is Phase.Bound
        await engine.delete_volume(volume)
        assert list((place / "zfs").iterdir()) == []
