"""From SIGTERM to the end: a web process says so first, and stops a little later."""

import signal
import threading
from types import FrameType

from django.conf import settings

stopping = threading.Event()  # since SIGTERM


def stopping_on_sigterm() -> None:
    """From SIGTERM on ``/readyz`` says 503, and after ``STOP_GRACE_S`` seconds the server stops as it would have.

    In these seconds a load balancer that asks sees it and sends nothing new; what still comes is answered.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    previous = signal.getsignal(signal.SIGTERM)
    if not callable(previous):
        return  # no server that would stop by it, such as manage.py runserver: SIGTERM ends the process as ever

    def stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            return
        stopping.set()
        if settings.STOP_GRACE_S:
            timer = threading.Timer(settings.STOP_GRACE_S, previous, (number, frame))
            timer.daemon = True
            timer.start()
        else:
            previous(number, frame)

    signal.signal(signal.SIGTERM, stop)
