"""
A Kubernetes control plane of our own: etcd, API server, controller manager and scheduler on loopback.

Each instance has its own ports, directory, certificates and tokens, so several may run side by side. What is switched
off is only what slows tests down: fsync of etcd, and throttling (see `Options`).
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tests.lab import flags
from tests.lab.api import Api, ApiError, Json
from tests.lab.build import binaries
from tests.lab.programs import LabError, Program, end_remembered, free_port, is_abandoned, remember, wait_until

ADMIN = "admin"
"""May do everything: a member of system:masters."""
STRANGER = "stranger"
"""Known to the API server, and allowed nothing that not everybody is allowed."""
SCHEDULER = "system:kube-scheduler"
CONTROLLERS = "system:kube-controller-manager"
STATE = "state.json"

_MASTERS = "system:masters"
_NODES = "system:nodes"
_UP = 60
"""Seconds until a program must be up; it takes three, but the machine may be busy."""
_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a test may want different."""

    throttling: bool = False
    """Priority and fairness, and a limit of requests in flight, as a real API server has them."""
    node_grace_seconds: int = _DAY
    """Silence after which a node is NotReady. Simulated nodes renew no leases unless asked to, hence a day."""
    users: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names and groups that `identity` can answer a token for, beside the usual ones."""
    nodes: tuple[str, ...] = ("real-1", "real-2", "real-3")
    """Names that kubelets may register themselves with."""
    kubelets_ask: bool = False
    """Kubelets let those use their own port whom the API server allows it, as in a real cluster; else everybody."""
    api_server_flags: tuple[str, ...] = ()
    controller_manager_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()


class ControlPlane:
    """
    One running control plane, from `start` to `stop`; also a context manager.

    `url`, `token` (of an administrator), `authority` (a file: the CA) and `kubeconfig` (a file) say how to reach it.
    """

    def __init__(self, options: Options | None = None, *, stays: bool = False, at: Path | None = None) -> None:
        sweep(at)
        self.options = options or Options()
        self.stays = stays
        self.directory = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=at or home()))
        self.authority = self.directory / "ca.crt"
        self.kubeconfig = self.directory / "kubeconfig"
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._binaries = binaries()
        self._etcd_port = free_port()
        self._tokens = {user: secrets.token_urlsafe(18) for user, _ in self._users()}
        self._apis: dict[str, Api] = {}
        self._programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def token(self) -> str:
        """Of the administrator."""
        return self._tokens[ADMIN]

    @property
    def api(self) -> Api:
        """The administrator's few calls. Tests of a client use that client."""
        return self.api_as(self.token)

    def start(self) -> None:
        """Return when pods can be made: all programs run and the default service account is there. Raises LabError."""
        try:
            self._write_files()
            self._start_programs()
            self.await_service_account("default")
        except BaseException:
            self.stop()
            raise

    def _start_programs(self) -> None:
        at, known, options = self.directory, self._binaries, self.options
        api_server = flags.api_server(at, self.port, etcd_port=self._etcd_port, throttling=options.throttling)
        api_server += flags.of_kubelets(at) if options.kubelets_ask else []
        controllers = flags.controller_manager(at, node_grace_seconds=options.node_grace_seconds)
        self.run("etcd", [*known.etcd, *flags.etcd(at, self._etcd_port)])
        self.run("kube-apiserver", [*known.kube_apiserver, *api_server, *options.api_server_flags])
        self._await_api_server()
        self.run(
            "kube-controller-manager", [*known.kube_controller_manager, *controllers, *options.controller_manager_flags]
        )
        self.run("kube-scheduler", [*known.kube_scheduler, *flags.scheduler(at), *options.scheduler_flags])

    def stop(self) -> None:
        """End everything and remove the directory. Nothing is worth a graceful end here."""
        self._close()
        for program in reversed(self._programs.values()):
            program.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def stop_api_server(self, *, grace: float = 0.0) -> None:
        """An outage: connections break, etcd stays. With *grace* seconds it may end in order, as in an upgrade."""
        self.programs["kube-apiserver"].stop(grace=grace)
        self._close()

    def start_api_server(self) -> None:
        """End the outage: the same address, certificates, tokens and objects. Raises LabError."""
        self.programs["kube-apiserver"].start()
        self._await_api_server()
        self._remember()

    def run(self, name: str, command: Sequence[str], *, environment: dict[str, str] | None = None) -> Program:
        """Run one more program beside the control plane; it ends with it, and its log lies in the directory."""
        log = self.directory / f"{name}.log"
        program = Program(name, command, log=log, stays=self.stays, environment=environment)
        program.start()
        self._programs[name] = program
        self._remember()
        return program

    @property
    def programs(self) -> dict[str, Program]:
        """What runs, by name, in the order in which it was started."""
        return self._programs

    def kubectl(self, *arguments: str, input: str = "") -> str:  # noqa: A002 - subprocess calls it so, too
        """What kubectl answers. Raises LabError with what it complained about."""
        command = [*self._binaries.kubectl, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.directory}/kubectl"]
        done = subprocess.run([*command, *arguments], input=input, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, manifest: str | Path) -> str:
        """Apply the text of a manifest, a file, or a folder with a kustomization."""
        if isinstance(manifest, str):
            return self.kubectl("apply", "--server-side", "-f", "-", input=manifest)
        return self.kubectl("apply", "--server-side", "-k" if manifest.is_dir() else "-f", str(manifest))

    def identity(self, user: str) -> str:
        """
        The token of somebody: ADMIN, STRANGER, a node of `Options.nodes`, or somebody of `Options.users`.

        An API server reads these once, at its start. For service accounts see `service_account_token`.
        """
        if user not in self._tokens:
            raise LabError(f"nobody is called {user!r} here; name users in Options.users before the start")
        return self._tokens[user]

    def service_account_token(self, namespace: str, name: str, *, bound_to: Json | None = None) -> str:
        """
        A token of a service account, made by the API server as for a pod.

        *bound_to* is a `boundObjectRef`; with a pod there the token also claims the pod's node. It is good for a day:
        nothing renews it, and all gang kinds take more than an hour on a busy machine.
        """
        spec = {"audiences": [], "expirationSeconds": _DAY, **({"boundObjectRef": bound_to} if bound_to else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
        return str(made["status"]["token"])

    def api_as(self, token: str) -> Api:
        """The few calls of the lab, as the user of *token*."""
        if token not in self._apis:
            self._apis[token] = Api(host="127.0.0.1", port=self.port, authority=str(self.authority), token=token)
        return self._apis[token]

    def write_kubeconfig(self, path: Path, token: str, *, server: str = "") -> Path:
        """A kubeconfig for the user of *token*; *server* where 127.0.0.1 is not the way to the API server."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "lab", "cluster": {"server": server or self.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "lab", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def new_namespace(self, prefix: str = "test") -> str:
        """A namespace that pods can be made in."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api.create("/api/v1/namespaces", body)
        self.await_service_account(name)
        return name

    def ensure_namespace(self, name: str) -> None:
        """A namespace with a name that somebody expects."""
        if not self.has(f"/api/v1/namespaces/{name}"):
            self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def await_service_account(self, namespace: str) -> None:
        """Until the default account is there, the API server refuses pods."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        controllers = self.programs["kube-controller-manager"]
        controllers.wait_until(f"a default service account in {namespace}", lambda: self.has(path), limit=_UP)

    def has(self, path: str) -> bool:
        """True when there is an object at *path*."""
        try:
            self.api.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def wait_until_served(self, path: str, *, limit: float = _UP) -> None:
        """Return when a kind whose definition was just applied can be listed at *path*. Raises LabError."""
        wait_until(f"served: {path}", lambda: self._serves(path), limit=limit)

    def await_definitions(self, *, limit: float = _UP) -> None:
        """
        Return when every kind that is defined is served. Raises LabError. `kubectl wait` ends with an error where a
        definition has no condition yet, as in its first moments.
        """
        wait_until("served: every definition", self._all_established, limit=limit)

    def _all_established(self) -> bool:
        found = self.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        conditions = [each.get("status", {}).get("conditions") or [] for each in found]
        return all(any(one["type"] == "Established" and one["status"] == "True" for one in each) for each in conditions)

    def wait_until_deleted(self, path: str, *, limit: float) -> None:
        """Return when there is no object at *path*. Raises LabError."""
        wait_until(f"gone: {path}", lambda: not self.has(path), limit=limit)

    def _serves(self, path: str) -> bool:
        """
        First it is unknown (404), then its storage begins (429). Its group names it later still on a busy machine, and
        a controller that looks for its kinds there ends when one is missing.
        """
        group, _, plural = path.rpartition("/")
        try:
            self.api.get(path)
            return any(each["name"] == plural for each in self.api.get(group)["resources"])
        except ApiError:
            return False

    def _close(self) -> None:
        for api in self._apis.values():
            api.close()

    def _await_api_server(self) -> None:
        self.programs["kube-apiserver"].wait_until("ready", self.api.is_ready, limit=_UP)

    def _remember(self) -> None:
        owner = None if self.stays else os.getpid()
        remember(self.directory / STATE, list(self._programs.values()), owner=owner)

    def _users(self) -> list[tuple[str, tuple[str, ...]]]:
        usual: list[tuple[str, tuple[str, ...]]] = [(ADMIN, (_MASTERS,)), (STRANGER, ())]
        programs: list[tuple[str, tuple[str, ...]]] = [(CONTROLLERS, ()), (SCHEDULER, ())]
        nodes = [(f"system:node:{name}", (_NODES,)) for name in self.options.nodes]
        return [*usual, *programs, *nodes, *self.options.users]

    def _write_files(self) -> None:
        subprocess.run([*self._binaries.certificates, str(self.directory), *flags.NAMES], check=True)
        rows = [f'{self._tokens[user]},{user},{user},"{",".join(groups)}"' for user, groups in self._users()]
        (self.directory / "tokens.csv").write_text("\n".join(rows) + "\n")
        if self.options.kubelets_ask:
            subprocess.run(flags.certificate_for_kubelets(self.directory), check=True, capture_output=True)
        self.write_kubeconfig(self.kubeconfig, self.token)
        self.write_kubeconfig(self.directory / "controllers.kubeconfig", self._tokens[CONTROLLERS])
        self.write_kubeconfig(self.directory / "scheduler.kubeconfig", self._tokens[SCHEDULER])


def home() -> Path:
    """Where the directories of all control planes of this user lie."""
    path = Path(tempfile.gettempdir()) / f"healthd-lab-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def sweep(at: Path | None = None, *, kept: bool = False) -> list[str]:
    """
    Remove what crashed labs left: their processes and directories; answers the names of the programs that still ran.

    Those that were asked to stay are removed only with *kept*.
    """
    ended = []
    for directory in (at or home()).iterdir():
        with suppress(FileNotFoundError):  # another process cleans up, too
            if is_abandoned(directory / STATE, kept=kept):
                ended += end_remembered(directory / STATE) if (directory / STATE).exists() else []
                shutil.rmtree(directory, ignore_errors=True)
    return ended
