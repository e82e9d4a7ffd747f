"""
Trees of files from the packages of the distribution, unpacked into the cache; nothing is installed on this machine.

`apt` chooses the versions and checks the signatures. A tree is whole (its packages and all that they need, down to the
C library), so a node or an image made from it takes nothing from the machine that it stands on. The scripts of the
packages do not run.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.lab import build
from tests.lab.real.prerequisites import NotHere

_SYSTEM_LISTS = Path("/var/lib/apt/lists")
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def tree(*names: str) -> Path:
    """
    A directory with *names* and everything that they depend on, as it would lie under `/`.

    Made once for each set of versions. Raises NotHere.
    """
    with build.locked(_home() / "lock"):
        versions = _chosen(names)
        digest = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:12]
        found = _home() / f"{names[0]}-{digest}"
        if not found.exists():
            _unpack(_download(versions), found)
        return found


def _home() -> Path:
    path = build.cache() / "packages"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _chosen(names: Iterable[str]) -> list[str]:
    """`name=version` of each package; remembered for as long as the lists of packages stay as they are."""
    wanted = " ".join(names)
    for lists in (_home() / "lists", _SYSTEM_LISTS):
        remembered = _home() / f"chosen-{hashlib.sha256(f'{wanted} {_fingerprint(lists)}'.encode()).hexdigest()[:12]}"
        if remembered.exists():
            return remembered.read_text().split()
        versions = _resolve(wanted, lists)
        if versions:
            remembered.write_text("\n".join(versions))
            return versions
    _refresh()
    versions = _resolve(wanted, _home() / "lists")
    if not versions:
        raise NotHere(f"apt knows no packages `{wanted}`; is its mirror reachable?")
    return versions


def _resolve(wanted: str, lists: Path) -> list[str]:
    """What an empty machine would install for *wanted*; empty when *lists* do not say."""
    done = _apt("--simulate", "install", *wanted.split(), lists=lists)
    return sorted(
        f"{name}={version}" for name, version in re.findall(r"^Inst (\S+) \((\S+)", done.stdout, re.MULTILINE)
    )


def _download(versions: list[str]) -> list[Path]:
    """The package files. A mirror keeps only the newest: when it has no more what the lists name, they are fetched."""
    for lists in (_home() / "lists", _SYSTEM_LISTS):
        if not _apt("--download-only", "install", *versions, lists=lists).returncode:
            return [_file(version) for version in versions]
    _refresh()
    done = _apt("--download-only", "install", *versions, lists=_home() / "lists")
    if done.returncode:
        raise NotHere(f"apt cannot download {versions[0]} and the others: {done.stderr.strip()[-300:]}")
    return [_file(version) for version in versions]


def _refresh() -> None:
    (_home() / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    _apt("update", lists=_home() / "lists")  # a source that does not answer is only a warning


def _file(version: str) -> Path:
    name, number = version.split("=")
    pattern = f"{name}_{number.replace(':', '%3a')}_*.deb"
    return next((_home() / "archives").glob(pattern))


def _apt(*arguments: str, lists: Path) -> subprocess.CompletedProcess[str]:
    """apt-get with a state of its own: an empty machine, and our own place for what it downloads."""
    if not shutil.which("apt-get"):
        raise NotHere("there is no apt-get on this machine: real nodes are made from Debian packages")
    archives, status = _home() / "archives", _home() / "status"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    status.touch()
    options = {
        "Dir::State::status": status,
        "Dir::State::lists": lists,
        "Dir::Cache": _home(),
        "Dir::Cache::archives": archives,
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "APT::Get::Assume-Yes": "true",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return subprocess.run(["apt-get", *words, *arguments], capture_output=True, text=True, check=False)


def _unpack(files: list[Path], into: Path) -> None:
    """All packages over one another, with /bin and the like merged into /usr as on an installed system."""
    unfinished = Path(tempfile.mkdtemp(prefix=f"{into.name}.", dir=into.parent))
    try:
        unfinished.chmod(0o755)
        for link, target in _LINKS.items():
            (unfinished / target).mkdir(parents=True)
            (unfinished / link).symlink_to(target)
        for file in files:
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as content:
                subprocess.run(
                    ["tar", "--extract", "--keep-directory-symlink", "--directory", unfinished],
                    stdin=content.stdout,
                    check=True,
                )
        unfinished.rename(into)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fingerprint(lists: Path) -> str:
    stats = [(path.name, path.stat().st_mtime_ns) for path in sorted(lists.glob("*_Packages*"))]
    return f"{lists} {stats}"
