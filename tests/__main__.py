"""`python -m tests`: every test, as continuous integration runs them.

Kubernetes is built beside the tests that need no cluster. A test that fails is tried once more, alone. A few of a run
may pass then, and each is printed at the end as a defect, with what was said at both tries; of more the run fails.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

REPORTS = Path(".cache/tests")
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
RESCUED = 2
"""So many tests of a run may need a second try; one more, and none is tried again."""
WORKERS = ("-n", "5", "--dist", "loadfile", "--no-loadscope-reorder")
"""They take whole files, in the order of `conftest.py`."""


@dataclass
class Suite:
    failed: bool = False
    rescued: list[str] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=dict)

    def run(self, title: str, chosen: str) -> None:
        """Run the tests that were chosen by their marks."""
        began = time.monotonic()
        code = _pytest(REPORTS / "first", "--durations=30", *WORKERS, "-m", chosen)
        if code == 1:
            self._try_again(chosen)
        elif code:
            self.failed = True
        self.took[title] = time.monotonic() - began

    def _try_again(self, chosen: str) -> None:
        failed = list(json.loads(LAST_FAILED.read_text()))
        if not failed or len(self.rescued) + len(failed) > RESCUED:
            self.failed = True
            return
        print(f"Tried once more, alone: {', '.join(failed)}", flush=True)
        if _pytest(REPORTS / "second", "--last-failed", "--last-failed-no-failures", "none", "-m", chosen):
            self.failed = True
        else:
            self.rescued += failed

    def print_defects(self) -> None:
        for test in self.rescued:
            print(f"\nDEFECT: {test} passed only at the second try.")
            for tried in ("first", "second"):
                said = report_of(REPORTS / tried, test)
                print(f"-- the {tried} try:\n{said.read_text() if said.exists() else '(nothing was said)'}")


def main() -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    os.environ.setdefault("PENSTOCK_SEED", str(random.randrange(10**6)))
    print(f"PENSTOCK_SEED={os.environ['PENSTOCK_SEED']} takes the same samples again", flush=True)
    suite = Suite()
    began = time.monotonic()
    building = subprocess.Popen([sys.executable, "-m", "tests.rig", "build", "--if-usable"])
    try:
        suite.run("without a cluster", "not cluster")
        suite.failed |= building.wait() != 0
        suite.took["waited for Kubernetes, which is built beside that"] = (
            time.monotonic() - began - sum(suite.took.values())
        )
        suite.run("with clusters", "cluster")
    finally:
        building.terminate()
        building.wait()
    suite.print_defects()
    for title, seconds in suite.took.items():
        print(f"{seconds / 60:6.1f} min  {title}")
    return int(suite.failed)


def _pytest(reports: Path, *arguments: str) -> int:
    variables = os.environ | {"TEST_REPORTS": str(reports.absolute())}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=variables).returncode


def report_of(directory: Path, test: str) -> Path:
    """Where what was said of one test is kept."""
    return directory / (test.replace("/", "-").replace(":", "-")[:200] + ".txt")


if __name__ == "__main__":
    sys.exit(main())
