"""
The image of healthd, made without an engine and without a registry, and the one that holds a pod together.

The base (Python of the distribution, and the packages of others that healthd needs, pinned) takes half a minute and is
kept; healthd itself is a thin layer over it, so that a change of its code costs a second. It behaves as the shipped
image does: `healthd` and `python3` are on the path, and the user is 65532.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from tests.lab import build
from tests.lab.programs import LabError
from tests.lab.real import packages
from tests.lab.real.oci import Image, Layer, cached_layer, tar, tar_of
from tests.lab.real.prerequisites import NotHere

NAME = "localhost/healthd:lab"
PAUSE = "localhost/pause:lab"
USER = 65532

_PROJECT = Path(__file__).parents[3]
_FORM = "4"
"""Counts up when this module makes another image from the same pins."""
_CONFIG = {
    "User": f"{USER}:{USER}",
    "WorkingDir": "/",
    "Entrypoint": ["healthd"],
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"],
}
_NO_NEED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/lib/dpkg", "etc/apt")
_SYSTEM = ("python3", "libstdc++6", "dash", "coreutils")
"""Of the distribution. The C++ library is for packages with compiled code; each base of the shipped image has it."""
_LOCK = _PROJECT / "deploy" / "requirements.lock"
_OPENER = "opt/healthd/opener.py"
"""Where the shipped image has what the privileged container runs."""
_FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\nnonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/bin/sh\n",
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
_COMPILE = ("-m", "compileall", "-q", "-o", "0", "-o", "2", "--invalidation-mode", "unchecked-hash")
"""With and without docstrings, as in the shipped image. Time stamps, the usual check, are all the same in an image."""
_LAUNCHER = """#!/usr/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""


def pause() -> Image:
    """Sleeps, and so keeps the namespaces of a pod for its containers. Raises NotHere."""

    def make(into: Path) -> None:
        into.write_bytes(
            tar({"busybox": (packages.tree("busybox-static") / "usr/bin/busybox").read_bytes()}, mode=0o755)
        )

    with build.locked(build.cache() / "images.lock"):
        layer = cached_layer(build.cache() / "images" / f"pause-{_FORM}.tar", make)
    return Image(name=PAUSE, layers=(layer,), config={"Entrypoint": ["/busybox", "sleep", "2147483647"]})


def base() -> Image:
    """Python and what healthd needs of others. Raises NotHere."""
    return Image(name="localhost/healthd-base:lab", layers=(_base_layer(),), config=_CONFIG)


def healthd() -> Image:
    """healthd as it lies in the working tree, over its base. Raises NotHere."""
    below = _base_layer()
    files = [path for path in sorted((_PROJECT / "healthd").rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    contents = [path.read_bytes() for path in (*files, _PROJECT / "pyproject.toml")]
    key = _key(below.digest, *(f"{path} {_key(content.hex())}" for path, content in zip(files, contents, strict=False)))
    with build.locked(build.cache() / "images.lock"):
        layer = cached_layer(build.cache() / "images" / f"healthd-{key}.tar", _make_healthd)
    return Image(name=NAME, layers=(below, layer), config=_CONFIG)


def _base_layer() -> Layer:
    system = packages.tree(*_SYSTEM)
    key = _key(_FORM, system.name, _LOCK.read_text())

    def make(into: Path) -> None:
        print("lab: making the base of the image of healthd: half a minute, once", file=sys.stderr, flush=True)
        root = Path(tempfile.mkdtemp(prefix="base.", dir=into.parent))
        try:
            _make_root(system, root)
            tar_of(root, into, leave_out=_NO_NEED)
        finally:
            shutil.rmtree(root)

    with build.locked(build.cache() / "images.lock"):
        return cached_layer(build.cache() / "images" / f"base-{key}.tar", make)


def _make_root(system: Path, root: Path) -> None:
    """The whole file system of the base in the empty directory *root*."""
    _run("cp", "-a", "--link", f"{system}/.", str(root))
    for name, content in _FILES.items():
        (root / name).write_text(content)
    for name, mode in {
        "tmp": 0o1777,
        "proc": 0o755,
        "sys": 0o755,
        "dev": 0o755,
        "root": 0o700,
        "home/nonroot": 0o755,
    }.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    version = _python(root)
    site = root / "usr/local/lib" / f"python{version}" / "dist-packages"
    _install(
        *_pip("install"),
        "--target",
        str(site),
        *_foreign(version),
        "--no-deps",
        "--requirement",
        str(_LOCK),
    )
    _run("chroot", str(root), "/usr/bin/python3", "-W", "error", "-c", "import google_crc32c")
    _compile(root, Path("/usr/lib") / f"python{version}", Path("/usr/local/lib") / f"python{version}")


def _make_healthd(into: Path) -> None:
    """A wheel, unpacked where Python looks, and its command."""
    system = packages.tree(*_SYSTEM)
    with tempfile.TemporaryDirectory(dir=into.parent) as place:
        at = Path(place)
        _run(*_pip("wheel"), "--no-deps", "--no-build-isolation", "--wheel-dir", place, str(_PROJECT))
        site = at / "root/usr/local/lib" / f"python{_python(system)}" / "dist-packages"
        with zipfile.ZipFile(next(at.glob("*.whl"))) as wheel:
            wheel.extractall(site)
        if _python(system) == f"{sys.version_info.major}.{sys.version_info.minor}":
            _run(sys.executable, *_COMPILE, "-s", str(at / "root"), "-p", "/", str(site))
        opener = at / "root" / _OPENER
        opener.parent.mkdir(parents=True)
        shutil.copy(site / "healthd/probes/klog/opener.py", opener)
        for name, target in tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"]["scripts"].items():
            module, _, function = target.partition(":")
            command = at / "root/usr/local/bin" / name
            command.parent.mkdir(parents=True, exist_ok=True)
            command.write_text(_LAUNCHER.format(module=module, function=function))
            command.chmod(0o755)
        tar_of(at / "root", into)


def _compile(root: Path, *directories: Path) -> None:
    """As the installation of a package does."""
    words = ["chroot", str(root), "/usr/bin/python3", *_COMPILE, *map(str, directories)]
    subprocess.run(words, capture_output=True, check=False)  # some files of the distribution are not meant to compile


def _python(root: Path) -> str:
    """`3.11`, of the interpreter in *root*."""
    return (root / "usr/bin/python3").readlink().name.removeprefix("python")


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", command]


def _foreign(version: str) -> list[str]:
    """Makes pip choose for the interpreter of the image, which may be another one than ours."""
    tags = [f"{tag}_{platform.machine()}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    options = ["--implementation", "cp", "--python-version", version, "--only-binary", ":all:", "--no-compile"]
    return [*options, *(word for tag in tags for word in ("--platform", tag))]


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _install(*command: str) -> None:
    try:
        _run(*command)
    except LabError as error:
        raise NotHere(f"{error}\nIs the index of Python packages reachable?") from error


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"`{' '.join(command[:4])} …` failed: {(done.stderr or done.stdout).strip()[-500:]}")
