"""Requests to stop: SIGTERM and Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set, so that a step is finished and saved first."""
    stop = threading.Event()
    with stop_signals(lambda number: stop.set()):
        yield stop


@contextmanager
def stop_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of each SIGTERM and Ctrl-C; not in a thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {
        number: signal.signal(number, lambda received, frame: handle(received))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
