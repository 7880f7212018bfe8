"""Celery beat with a lock around it: of several beats one sends, the others stand by."""

import logging
from typing import Any

from django.db import DatabaseError, InterfaceError
from django_celery_beat.schedulers import DatabaseScheduler

from seize import store

log = logging.getLogger(__name__)

LEASE_MS = 10_000
STANDBY_S = 1.0


class SingleBeatScheduler(DatabaseScheduler):
    """A beat that sends only while it holds the lease ``beat``; another takes over within ten seconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.lease = store.Lease("beat", lease_ms=LEASE_MS)
        self.leads = False
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, or nothing while another beat leads; returns seconds until the next tick."""
        if not self._leads_now():
            return STANDBY_S
        try:
            return float(super().tick(*args, **kwargs))
        except (DatabaseError, InterfaceError) as fault:
            # The schedule it has in memory is good enough for the next try.
            log.warning("beat waits for the database: %s", fault)
            return STANDBY_S

    def _leads_now(self) -> bool:
        try:
            leads = self.lease.renew() or self.lease.acquire()
        except (store.StoreUnavailable, store.OutcomeUnknown) as fault:
            log.warning("beat waits for Redis: %s", fault)
            leads = False
        if leads != self.leads:
            log.warning("this beat %s", "leads now" if leads else "stands by: another one leads")
            self.leads = leads
        return leads

    def close(self) -> None:
        """Let the next beat lead at once."""
        super().close()
        try:
            self.lease.release()
        except (store.StoreUnavailable, store.OutcomeUnknown):
            log.warning("the beat's lease was not given back; it runs out by itself")
