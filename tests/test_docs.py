"""The documentation says everything there is, and nothing that is no more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import reference

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])


@pytest.fixture(scope="module")
def fresh_reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by a process of its own: what other tests imported and click remembers changes nothing."""
    place = tmp_path_factory.mktemp("reference")
    subprocess.run(
        [sys.executable, "-m", "scripts.reference", str(place)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    return place


@pytest.mark.parametrize("name", ["cli.md", "rest.md", "openapi.json", "settings.md", "map.md"])
def test_the_reference_is_what_the_code_says(fresh_reference, name):
    written = (DOCS / "reference" / name).read_text()
    assert written == (fresh_reference / name).read_text(), f"docs/reference/{name} is out of date: run make docs"


def test_every_command_is_explained():
    for name, context in reference.commands():
        assert context.command.help, f"{name} has no help text"


def test_every_option_is_explained():
    for name, context in reference.commands():
        for option in context.command.params:
            if option.param_type_name == "option" and not option.hidden:
                assert option.help, f"{name} {option.opts[0]} has no help text"


def test_every_setting_is_explained():
    for name, _, _, text in reference.settings():
        assert text, f"the setting {name} has no docstring"


def test_every_route_is_explained():
    for path, methods in reference.openapi()["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method.upper()} {path} has no docstring"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_leads_nowhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_module_says_what_it_is_for():
    for path in sorted(reference.SOURCE.rglob("*.py")):
        assert reference.purpose(path).endswith((".", "?")), f"{path} does not open with a whole sentence"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_only_files_that_exist(page):
    for path in re.findall(r"`((?:src|tests|docs|deploy|examples|scripts|bench)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_only_commands_and_options_that_exist(page):
    known = {tuple(name.split()): context.command for name, context in reference.commands()}
    for line in _command_lines(page):
        words = line.partition(" -- ")[0].split()
        name = next(name for length in (4, 3, 2, 1) if (name := ("penstock", *words[1:length])) in known)
        assert not hasattr(known[name], "commands") or len(words) == len(name), f"{page.name}: {line}"
        options = {option for parameter in known[name].params for option in parameter.opts + parameter.secondary_opts}
        for word in words:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in options, f"{page.name}: {line}"


def _command_lines(page: Path) -> list[str]:
    """What a reader would type: lines of shell blocks and pieces of code in the text."""
    text = page.read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    typed = [line.partition(" # ")[0] for block in blocks for line in block.splitlines()]
    typed += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    named = [re.sub(r"^pwmadm ", "penstock adm ", line.strip()) for line in typed]
    return [line for line in named if re.match(r"(penstock|k8s-cli|pwmcli) ", line)]
