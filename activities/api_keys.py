"""Keys by which other services call ``/market/inner/``: made, shown once, verified, revoked.

A key is ``csk_<prefix>_<secret>``. The prefix finds the row; of the secret, 256 random bits, only SHA-256 is kept: what
cannot be guessed needs no slow hash.
"""

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError, transaction
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from activities.audit import Action, Actor, event_record
from activities.models import ApiKey

log = logging.getLogger(__name__)

USE_RECORDED_EVERY = timedelta(minutes=1)  # a write a request would cost more than the request
_KEY = re.compile(r"csk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class ApiKeyRefused(Exception):
    """The key cannot be made or revoked so; ``str()`` is the reason. Nothing was changed."""

    def __init__(self, reason: str | Promise) -> None:
        super().__init__(str(reason))


class ApiKeyInvalid(Exception):
    """Not a key, not one of ours, or revoked: the caller is nobody."""


def api_key_make(*, name: str, scopes: Sequence[str], by: Actor, now: datetime) -> tuple[ApiKey, str]:
    """Make a key; returns its row and the key itself, which nobody can show again.

    :param scopes: of ``ApiKey.Scope``, at least one.
    :raises ApiKeyRefused: a name that is empty, too long or taken, also by a revoked key; an unknown scope, or none.
    """
    if not scopes or not set(scopes) <= set(ApiKey.SCOPES):
        raise ApiKeyRefused(_("Give at least one scope of: %(scopes)s.") % {"scopes": ", ".join(ApiKey.SCOPES)})
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    key = ApiKey(
        name=name.strip(),
        prefix=prefix,
        hashed=_hashed(secret),
        scopes=sorted(set(scopes)),
        created_by=by.name[:150],
    )
    try:
        key.full_clean()
    except ValidationError as error:
        raise ApiKeyRefused(" ".join(error.messages)) from error
    try:
        with transaction.atomic():
            key.save()
            event_record(action=Action.KEY_MAKE, subject=key, by=by, now=now, after={"scopes": key.scopes})
    except IntegrityError as error:  # somebody else made it since it was checked
        raise ApiKeyRefused(_("There is a key of this name already.")) from error
    return key, f"csk_{prefix}_{secret}"


def api_key_revoke(*, key_id: int, by: Actor, now: datetime) -> ApiKey:
    """From now on the key is nobody's. It stays in the list, and its name is not given again: the ledger has it.

    :raises ApiKeyRefused: revoked already.
    """
    with transaction.atomic():
        unrevoked = ApiKey.objects.filter(pk=key_id, revoked_at=None)
        if not unrevoked.update(revoked_at=now, revoked_by=by.name[:150]):
            raise ApiKeyRefused(_("This key is revoked already."))
        key = ApiKey.objects.get(pk=key_id)
        event_record(action=Action.KEY_REVOKE, subject=key, by=by, now=now)
        return key


def api_key_verify(*, text: str, now: datetime) -> ApiKey:
    """The row of a key that is good; notes its use, at most once a minute.

    :raises ApiKeyInvalid: anything else.
    """
    found = _KEY.fullmatch(text)
    key = ApiKey.objects.filter(prefix=found[1], revoked_at=None).first() if found else None
    if found is None or key is None or not hmac.compare_digest(key.hashed, _hashed(found[2])):
        raise ApiKeyInvalid
    if key.last_used_at is None or now - key.last_used_at >= USE_RECORDED_EVERY:
        _use_note(key, now=now)
    return key


def _use_note(key: ApiKey, *, now: datetime) -> None:
    """Of many requests at once one notes it; a ledger that cannot be written now is no reason to refuse a reader."""
    unchanged = ApiKey.objects.filter(pk=key.pk, last_used_at=key.last_used_at)
    try:
        unchanged.update(last_used_at=now)
    except OperationalError as fault:
        log.warning("the use of the API key %s was not noted: %s", key.name, fault)


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
