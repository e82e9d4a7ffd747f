"""The kubelet of this machine: bound pods become processes, and their endings become proofs."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO, cast

import pytest
from structlog.testing import capture_logs

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Cluster, Unavailable
from healthd.core.api import ANNOTATION_ATTEMPT, Container, Device, EnvVar, Pod, Terminated
from healthd.core.api.model import KernelRecord
from healthd.core.recovery.members import is_terminal
from healthd.local.machine.slots import register, slots_for
from healthd.local.processes.marks import find_processes
from healthd.local.processes.runner import ProcessRunner
from healthd.local.processes.supervise import Rank
from healthd.probes.klog.kmsg import open_kmsg, read_boot_id
from tests.builders import a_pod
from tests.local.helpers import (
    Witness,
    heard_pids,
    in_background,
    parent_of,
    python,
    running,
    shell,
    stopped,
    stubborn,
    until,
    until_gone,
    witness_at,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Its uids are unique on this machine: they mark processes, and tests run beside each other."""
    numbers = iter(range(1, 1000))
    new_uid = lambda: f"{os.getpid()}-{tmp_path.name}-{next(numbers)}"  # noqa: E731
    with EmbeddedCluster.open(None, clock=SystemClock(), new_uid=new_uid) as embedded:
        yield embedded


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with witness_at(tmp_path / "witness") as witness:
        yield witness


def a_runner(
    cluster: EmbeddedCluster,
    tmp_path: Path,
    terminal: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ProcessRunner:
    return ProcessRunner(cluster, SystemClock(), log_dir=tmp_path / "logs", environ=environ, terminal=terminal)


@asynccontextmanager
async def a_machine(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[ProcessRunner]:
    runner = a_runner(cluster, tmp_path)
    async with in_background(runner):
        yield runner


async def a_running_pod(cluster: EmbeddedCluster, command: list[str], name: str = "rank", **fields: object) -> Pod:
    await cluster.create(a_pod(name, node="slot-0", index=0, container=running(command), **fields))  # type: ignore[arg-type]
    return await until(cluster, Pod, name, lambda pod: pod.status.phase == "Running", "default")


def waiting(witness: Witness) -> list[str]:
    """The command of a rank that says its pid and waits."""
    return shell('echo $$ > "$1"; exec sleep 1000', witness.path)


async def the_end_of(cluster: EmbeddedCluster, name: str = "rank") -> Terminated:
    pod = await until(cluster, Pod, name, is_terminal, "default")
    end = pod.status.container_statuses[0].state.terminated
    assert end is not None
    return end


async def test_a_bound_pod_runs_and_reports_how_it_ended(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with a_machine(cluster, tmp_path):
        await cluster.create(a_pod("rank", node="slot-0", index=0, container=running(shell("exit 3"))))
        end = await the_end_of(cluster)
        pod = await cluster.get(Pod, "rank", "default")

    assert (end.exit_code, end.signal, end.reason) == (3, 0, "Error")
    assert (pod.status.phase, pod.status.reason) == ("Failed", "Error")
    assert end.started_at is not None


class FullDisk:
    """A cluster whose disk has no room for how a pod ended, until there is room."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.refused = asyncio.Event()
        self.has_room = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: Any, name: str, patch: Any, **where: Any) -> Any:
        if not self.has_room and patch.get("status", {}).get("phase") == "Failed":
            self.refused.set()
            raise Unavailable("database or disk is full")
        return await self._cluster.patch(kind, name, patch, **where)


async def test_an_end_that_the_disk_had_no_room_for_is_reported_later_with_its_own_time(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """A restart costs from then on, not from when the disk had room again."""
    disk, clock = FullDisk(cluster), SystemClock()
    runner = ProcessRunner(cast("Cluster", disk), clock, log_dir=tmp_path / "logs", environ=os.environ)
    async with in_background(runner):
        await cluster.create(a_pod("rank", node="slot-0", index=0, container=running(shell("exit 3"))))
        await disk.refused.wait()
        full_at, disk.has_room = clock.now(), True
        end = await the_end_of(cluster)

    assert end.finished_at is not None
    assert end.finished_at <= full_at


async def test_what_a_rank_leaves_behind_is_said_once(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The run waits for it without a word otherwise."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = 'sh -c "read go" <"$1" & echo $! >"$2"'
    runner, now = a_runner(cluster, tmp_path), SystemClock().now()
    with capture_logs() as logs:
        async with in_background(runner):
            pod = a_pod("rank", node="slot-0", index=0, container=running(shell(script, gate, tmp_path / "pid")))
            await cluster.create(pod)
            async with asyncio.timeout(30):
                while not any(log["event"] == "rank.left_processes" for log in logs):
                    await runner.cycle(now + timedelta(minutes=1))
                    now += timedelta(seconds=1)
                    await asyncio.sleep(0)  # the messages of the shim are read meanwhile
            await runner.cycle(now + timedelta(minutes=2))
            await asyncio.to_thread(gate.write_text, "go\n")
            end = await the_end_of(cluster)

    assert end.exit_code == 0
    left = [log for log in logs if log["event"] == "rank.left_processes"]
    pid = (tmp_path / "pid").read_text().strip()
    who = f"rank 0 has ended with exit code 0, and a process that it started still runs ({pid})"
    assert [log["text"] for log in left] == [f"{who}: it is killed after 30 s (--grace)"]


async def test_an_unbound_pod_is_left_alone(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    runner = a_runner(cluster, tmp_path)
    await cluster.create(a_pod("rank"))
    before = await cluster.get(Pod, "rank", "default")
    await runner.cycle(SystemClock().now())

    assert await cluster.get(Pod, "rank", "default") == before


@pytest.mark.slow
async def test_a_deleted_pod_stays_until_its_last_process_is_gone(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    async with a_machine(cluster, tmp_path):
        await a_running_pod(cluster, stubborn(witness, "unmarked"), grace_seconds=1)
        await heard_pids(witness)
        await cluster.delete(Pod, "rank", namespace="default")
        await until_gone(cluster, "rank")

        assert witness.is_alone()


async def test_a_finalizer_keeps_the_proof(cluster: EmbeddedCluster, tmp_path: Path, witness: Witness) -> None:
    async with a_machine(cluster, tmp_path):
        await a_running_pod(cluster, stubborn(witness), finalizers=["healthd.dev/fence"])
        await heard_pids(witness)
        await cluster.delete(Pod, "rank", namespace="default", grace_seconds=0)
        end = await the_end_of(cluster)

        assert witness.is_alone()
        assert "no process of it is left" in end.message


async def test_a_pod_whose_object_was_taken_away_loses_its_processes(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    async with a_machine(cluster, tmp_path):
        await a_running_pod(cluster, stubborn(witness))
        await heard_pids(witness)
        await cluster.delete(Pod, "rank", namespace="default", grace_seconds=0)

        await witness.silence()


async def test_a_slot_is_not_given_away_while_processes_of_a_vanished_pod_live(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    async with a_machine(cluster, tmp_path):
        await a_running_pod(cluster, stubborn(witness), "old")
        await heard_pids(witness)
        await cluster.delete(Pod, "old", namespace="default", grace_seconds=0)
        script = 'if exec 3>"$1"; then echo started >&3; fi; sleep 1000'
        await a_running_pod(cluster, shell(script, witness.path), "new")

        assert await witness.hear() == "started"
        assert find_processes((await cluster.get(Pod, "new", "default")).metadata.uid)


async def test_a_pod_deleted_before_its_start_never_runs(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    pod = a_pod("rank", node="slot-0", finalizers=["healthd.dev/fence"], container=running(["touch", str(mark)]))
    await cluster.create(pod)
    await cluster.delete(Pod, "rank", namespace="default")
    async with a_machine(cluster, tmp_path):
        end = await the_end_of(cluster)

    assert end.reason == "NeverStarted"
    assert not mark.exists()


@pytest.mark.slow
async def test_a_pod_that_was_begun_in_an_earlier_life_is_not_begun_again(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    await cluster.create(a_pod("rank", node="slot-0", container=running(["touch", str(mark)])))
    now = SystemClock().now().isoformat()
    await cluster.patch(Pod, "rank", {"status": {"startTime": now}}, namespace="default", subresource="status")
    async with a_machine(cluster, tmp_path):
        end = await the_end_of(cluster)

    assert (end.reason, end.message) == (
        "EndedWithHealthd",
        "lost its supervisor when healthd was restarted; no process of it is left",
    )
    assert not mark.exists()


async def test_output_of_both_streams_is_in_the_log_of_the_rank_and_attempt(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    container = running(shell("printf 'one\\n'; printf '\\377\\000two' >&2"))
    async with a_machine(cluster, tmp_path):
        pod = a_pod("rank", node="slot-0", index=3, annotations={ANNOTATION_ATTEMPT: "2"}, container=container)
        await cluster.create(pod)
        await the_end_of(cluster)

    assert (tmp_path / "logs/attempt-2/rank-3.log").read_bytes() == b"one\n\xff\x00two"


async def test_the_terminal_shows_each_line_with_its_rank(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    terminal = io.StringIO()
    runner = a_runner(cluster, tmp_path, terminal)
    async with in_background(runner):
        await cluster.create(a_pod("rank", node="slot-0", index=3, container=running(shell("echo one; printf two"))))
        await the_end_of(cluster)

    assert terminal.getvalue() == "[rank 3] one\n[rank 3] two\n"


async def test_a_rank_has_its_own_environment_on_top_of_healthds(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "USER_SETTING": "kept", "HEALTHD_RESUME_FROM": "/of/another/gang"}
    command = ["sh", "-c", "env; pwd"]
    container = Container(command=command, env=[EnvVar(name="RANK", value="3")], working_dir=str(tmp_path))
    runner = a_runner(cluster, tmp_path, environ=environ)
    async with in_background(runner):
        pod = await cluster.create(a_pod("rank", node="slot-0", index=3, container=container))
        await the_end_of(cluster)
    printed = (tmp_path / "logs/attempt-0/rank-3.log").read_text().splitlines()

    assert {"USER_SETTING=kept", "RANK=3", f"HEALTHD_POD_UID={pod.metadata.uid}", str(tmp_path)} <= set(printed)
    assert not [line for line in printed if line.startswith(("HEALTHD_RESUME_FROM", "HEALTHD_SHIM_OF"))]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("OSError(5, 'Input/output error', 'out/step-15')", "NotWritable"),
        ("OSError(5, 'Input/output error', 'out/step-10')", "Error"),
        ("OSError(30, 'Read-only file system', '/root/.cache/triton')", "NotWritable"),
    ],
)
async def test_what_a_rank_could_not_write_is_known_by_its_last_words(
    cluster: EmbeddedCluster, tmp_path: Path, error: str, reason: str
) -> None:
    loaded = EnvVar(name="HEALTHD_RESUME_FROM", value=str(tmp_path / "out/step-10"))
    container = Container(command=python(f"raise {error}"), env=[loaded], working_dir=str(tmp_path))
    runner = ProcessRunner(
        cluster, SystemClock(), log_dir=tmp_path / "logs", environ=os.environ, saves_in=tmp_path / "out"
    )
    async with in_background(runner):
        await cluster.create(a_pod("rank", node="slot-0", index=0, container=container))
        assert (await the_end_of(cluster)).reason == reason


async def test_a_rank_sees_the_gpus_of_its_gang_as_soon_as_all_of_it_has_slots(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    gpus = [Device(pci=f"0000:{number:02x}:00.0", uuid=f"GPU-{number}") for number in range(3)]
    await register(cluster, slots_for(3, gpus), boot_id="boot-1", now=SystemClock().now())
    command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    container = Container(name="main", command=command, env=[EnvVar(name="WORLD_SIZE", value="2")])
    async with a_machine(cluster, tmp_path) as runner:
        await cluster.create(a_pod("first", node="slot-2", index=0, container=container))
        await cluster.create(a_pod("second", node="", index=1, container=container))
        await runner.cycle(SystemClock().now())
        alone = await cluster.get(Pod, "first", "default")
        await cluster.patch(Pod, "second", {"spec": {"nodeName": "slot-0"}}, namespace="default")
        await the_end_of(cluster, "first")
        await the_end_of(cluster, "second")

    assert alone.status.start_time is None
    assert [(tmp_path / f"logs/attempt-0/rank-{rank}.log").read_text() for rank in range(2)] == ["GPU-2,GPU-0\n"] * 2


async def test_a_log_that_cannot_be_written_fails_the_pod_with_the_reason(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("in the way")
    async with a_machine(cluster, tmp_path):
        await cluster.create(a_pod("rank", node="slot-0", container=running(["true"])))
        end = await the_end_of(cluster)

    assert end.reason == "StartError"
    assert end.message.startswith("cannot be started: its log cannot be written: ")


async def test_the_last_output_moves_only_when_the_rank_says_something(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    script = 'exec 3>"$1"; echo ready >&3; read go <"$2"; echo hello; echo said >&3; sleep 1000'
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    runner = a_runner(cluster, tmp_path)
    async with in_background(runner):
        pod = await a_running_pod(cluster, shell(script, witness.path, gate))
        await witness.hear()
        started = runner.last_output(pod.metadata.uid)
        await runner.cycle(SystemClock().now())
        quiet = runner.last([pod])
        await asyncio.to_thread(gate.write_text, "go\n")
        await witness.hear()
        await runner.cycle(SystemClock().now())

        assert started is not None
        assert quiet == started
        assert (runner.last([pod]) or started) > started
    assert runner.last([]) is None


async def test_shutdown_gives_ranks_their_grace(cluster: EmbeddedCluster, tmp_path: Path, witness: Witness) -> None:
    script = """
import os, signal, sys
def save(*_):
    os.write(witness, b"saving\\n")
    os._exit(5)
witness = os.open(sys.argv[1], os.O_WRONLY)
signal.signal(signal.SIGTERM, save)
os.write(witness, b"ready\\n")
while True:
    signal.pause()
"""
    runner = a_runner(cluster, tmp_path)
    async with in_background(runner):
        await a_running_pod(cluster, python(script, witness.path))
        await witness.hear()
        await runner.shutdown(timedelta(seconds=30))
        end = await the_end_of(cluster)

        assert await witness.hear() == "saving"
        assert (end.exit_code, end.signal) == (5, 0)


async def test_nothing_is_started_during_a_shutdown(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    runner = a_runner(cluster, tmp_path)
    await runner.shutdown(timedelta(0))
    await cluster.create(a_pod("rank", node="slot-0"))
    await runner.cycle(SystemClock().now())

    assert (await cluster.get(Pod, "rank", "default")).status.start_time is None


async def test_a_process_that_cannot_be_killed_is_named_once(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shim is stopped here, as a process that sits in a driver would be; only a kernel bug makes the real thing."""
    monkeypatch.setattr(Rank, "wake", lambda _: None)
    now = SystemClock().now()
    async with a_machine(cluster, tmp_path) as runner:
        pod = await a_running_pod(cluster, stubborn(witness))
        shim = parent_of((await heard_pids(witness))["rank"])
        os.kill(shim, signal.SIGSTOP)
        await cluster.delete(Pod, "rank", namespace="default", grace_seconds=0)
        with capture_logs() as logs:
            for seconds in (0, 9, 11, 12):
                await runner.cycle(now + timedelta(seconds=seconds))
        os.kill(shim, signal.SIGCONT)
        await witness.silence()

    [stuck] = [entry for entry in logs if entry["event"] == "rank.stuck"]
    assert (stuck["uid"], len(stuck["pids"])) == (pod.metadata.uid, 2)


async def test_the_end_of_a_rank_is_seen_although_its_shim_was_stopped(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    async with a_machine(cluster, tmp_path):
        await a_running_pod(cluster, waiting(witness))
        pid = int(await witness.hear())
        with stopped(parent_of(pid)):
            os.kill(pid, signal.SIGKILL)
            end = await the_end_of(cluster)

    assert end.signal == signal.SIGKILL


async def test_a_rank_that_the_kernel_says_it_killed_ended_for_want_of_memory(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    async with a_machine(cluster, tmp_path) as runner:
        await a_running_pod(cluster, waiting(witness))
        pid = int(await witness.hear())
        runner.ingest_records([out_of_memory(pid, "a,pid=1,uid=0")])
        os.kill(pid, signal.SIGKILL)
        end = await the_end_of(cluster)

    assert (end.exit_code, end.signal, end.reason) == (137, 9, "OOMKilled")
    assert f"out-of-memory killer had killed process {pid} of it" in end.message


async def test_a_kill_of_another_process_in_the_same_second_is_not_the_ranks(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    async with a_machine(cluster, tmp_path) as runner:
        await a_running_pod(cluster, waiting(witness))
        pid = int(await witness.hear())
        runner.ingest_records([out_of_memory(os.getpid(), f"x,pid={pid},uid=")])
        os.kill(pid, signal.SIGKILL)
        end = await the_end_of(cluster)

    assert (end.signal, end.reason) == (9, "Error")


def out_of_memory(pid: int, name: str) -> KernelRecord:
    text = f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/a,task={name},pid={pid},uid=0"
    return KernelRecord(sequence=1, at=SystemClock().now(), text=text)


@pytest.mark.kmsg
async def test_the_kernel_kills_one_rank_for_want_of_memory_while_another_is_killed_by_hand(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness, small_group: Path
) -> None:
    """With the machine's real kernel. The name of the rank forges a pid and a line."""
    greedy = python(GREEDY, small_group)
    async with a_machine(cluster, tmp_path) as runner, ingested_by(runner):
        await a_running_pod(cluster, waiting(witness), "other")
        other = int(await witness.hear())
        pod = a_pod("greedy", node="slot-1", index=1, container=running(greedy))
        await cluster.create(pod)
        ends = [await the_end_of(cluster, "greedy")]
        os.kill(other, signal.SIGKILL)
        ends.append(await the_end_of(cluster, "other"))

    assert [(end.signal, end.reason) for end in ends] == [(9, "OOMKilled"), (9, "Error")]


GREEDY = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
open("/proc/self/comm", "w").write("a\\n,pid=1,uid=0")
eaten = []
while True:
    eaten.append(bytearray(1 << 20))
"""


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A control group with very little memory."""
    root = Path("/sys/fs/cgroup")
    kind = (
        (root, "memory.max") if (root / "cgroup.controllers").exists() else (root / "memory", "memory.limit_in_bytes")
    )
    group = kind[0] / f"healthd-test-{os.getpid()}-{tmp_path.name}"
    try:
        group.mkdir()
        (group / kind[1]).write_text("30000000")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    group.rmdir()


@asynccontextmanager
async def ingested_by(runner: ProcessRunner) -> AsyncIterator[None]:
    """The machine's kernel log is read for it."""
    kernel_log = open_kmsg(clock=SystemClock(), boot_id=read_boot_id())

    async def read() -> None:
        async with aclosing(kernel_log.batches()) as batches:
            async for batch in batches:
                runner.ingest_records(batch.records)

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
