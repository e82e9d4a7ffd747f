"""
How each program of a control plane is called. The files that are named here lie in the directory of the control plane.
"""

from __future__ import annotations

import json
from pathlib import Path

SERVICES = "10.96.0.0/16"
NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")
"""What the API server's certificate is good for: from here, and from inside, where the first service is its own."""
TO_KUBELETS = "to-kubelets.crt"
"""As whom the API server comes to kubelets."""

_UNTHROTTLED = ("--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0")


def etcd(at: Path, port: int) -> list[str]:
    """One member; nothing in it must survive a power cut."""
    url = f"http://127.0.0.1:{port}"
    return [
        f"--data-dir={at}/etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def api_server(at: Path, port: int, *, etcd_port: int, throttling: bool) -> list[str]:
    """Authorization and admission as in a real cluster."""
    limits = [] if throttling else ["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"]
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={at}/server.crt",
        f"--tls-private-key-file={at}/server.key",
        f"--token-auth-file={at}/tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={at}/accounts.pub",
        f"--service-account-signing-key-file={at}/accounts.key",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--enable-priority-and-fairness={json.dumps(throttling)}",
        *limits,
    ]


def of_kubelets(at: Path) -> list[str]:
    """How the API server shows kubelets that ask for it who it is."""
    return [f"--kubelet-client-certificate={at}/{TO_KUBELETS}", f"--kubelet-client-key={at}/to-kubelets.key"]


def certificate_for_kubelets(at: Path) -> list[str]:
    """The command that makes it: signed by itself, which is enough for a kubelet that is given it."""
    return [
        *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-days", "3650", "-subj", "/O=system:masters/CN=api-server", "-addext", "extendedKeyUsage=clientAuth"),
        *("-keyout", f"{at}/to-kubelets.key", "-out", f"{at}/{TO_KUBELETS}"),
    ]


def controller_manager(at: Path, *, node_grace_seconds: int) -> list[str]:
    """Each controller acts under its own service account, as policies expect it."""
    return [
        f"--kubeconfig={at}/controllers.kubeconfig",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={at}/accounts.key",
        f"--root-ca-file={at}/ca.crt",
        f"--node-monitor-grace-period={node_grace_seconds}s",
        *_UNTHROTTLED,
    ]


def scheduler(at: Path) -> list[str]:
    """The default profile."""
    return [f"--kubeconfig={at}/scheduler.kubeconfig", *_UNTHROTTLED]
