"""An interrupt is never lost, whatever a library does with the exception."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from trainperf_mlflow import signals
from trainperf_mlflow.errors import Interrupted
from trainperf_mlflow.signals import interruptible


@pytest.fixture(autouse=True)
def handlers_of_a_terminal() -> Iterator[None]:
    """As in a foreground process: whoever runs the tests may have these signals ignored."""
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nohup_keeps_its_word() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible() as interruption:
        signal.raise_signal(signal.SIGHUP)
        interruption.check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def swallowing(number: signal.Signals) -> None:
    try:
        signal.raise_signal(number)
    except Exception:
        return
    raise AssertionError("the signal raised nothing")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_swallowed_interrupt_is_raised_again_at_the_next_check(number: signal.Signals) -> None:
    with interruptible() as interruption:
        interruption.check()
        swallowing(number)
        with pytest.raises(Interrupted) as caught:
            interruption.check()
    assert caught.value.exit_code == 128 + number


def test_an_interrupt_can_wait_until_a_step_that_must_not_be_cut_is_done() -> None:
    with interruptible() as interruption:
        with interruption.later():
            signal.raise_signal(signal.SIGTERM)
            interruption.check()
            done = True
        assert done
        with pytest.raises(Interrupted):
            interruption.check()


def test_one_that_follows_at_once_is_the_same_and_a_later_one_cuts_the_cleaning_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with interruptible():
        swallowing(signal.SIGINT)
        now[0] = signals.SAME_INTERRUPT_S - 0.1
        signal.raise_signal(signal.SIGINT)
        now[0] = signals.SAME_INTERRUPT_S + 0.1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_the_handlers_are_as_before() -> None:
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with interruptible():
        assert [signal.getsignal(number) for number in signals.SIGNALS] != before
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before
