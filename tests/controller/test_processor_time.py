"""What a coroutine uses of a processor itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from healthd.controller.processor_time import ProcessorTime


class Computer:
    """A processor whose time only this counts."""

    def __init__(self) -> None:
        self.time = 0.0

    def compute(self, seconds: float) -> None:
        """It takes so long."""
        self.time += seconds


async def works(computer: Computer, answer: asyncio.Future[str]) -> str:
    """A second before it waits, and half a second after."""
    computer.compute(1)
    try:
        return await answer
    finally:
        computer.compute(0.5)


def answers(answer: asyncio.Future[str]) -> None:
    answer.set_result("done")


def fails(answer: asyncio.Future[str]) -> None:
    answer.set_exception(OSError("no route"))


async def test_what_others_do_while_it_waits_does_not_count() -> None:
    computer, answer = Computer(), asyncio.get_running_loop().create_future()
    time = ProcessorTime(lambda: computer.time)
    task = asyncio.ensure_future(time.of(works(computer, answer)))
    await asyncio.sleep(0)
    computer.compute(60)
    answers(answer)

    assert await task == "done"
    assert time.used == timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("ends", "error"), [(fails, OSError), (lambda answer: answer.cancel(), asyncio.CancelledError)]
)
async def test_errors_and_cancellations_pass(
    ends: Callable[[asyncio.Future[str]], object], error: type[BaseException]
) -> None:
    computer, answer = Computer(), asyncio.get_running_loop().create_future()
    time = ProcessorTime(lambda: computer.time)
    task = asyncio.ensure_future(time.of(works(computer, answer)))
    await asyncio.sleep(0)
    ends(answer)

    with pytest.raises(error):
        await task
    assert time.used == timedelta(seconds=1.5)


async def test_a_cancelled_task_ends_what_it_does() -> None:
    computer, answer = Computer(), asyncio.get_running_loop().create_future()
    time = ProcessorTime(lambda: computer.time)
    task = asyncio.ensure_future(time.of(works(computer, answer)))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert answer.cancelled()
    assert time.used == timedelta(seconds=1.5)
