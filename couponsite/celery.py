"""The Celery application; its settings are the ``CELERY_*`` names of the settings file."""

import gc
import os

from celery import Celery
from celery.signals import worker_process_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

app = Celery("couponsite")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_process_init.connect
def heap_freeze(**_signal: object) -> None:
    """Keep the collector from walking through Django and Celery again and again while a drain makes its rows."""
    gc.freeze()
