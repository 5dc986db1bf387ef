"""Requests to stop a training: SIGTERM and Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set, so that a step is finished and saved first."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
