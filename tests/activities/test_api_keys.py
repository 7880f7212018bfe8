"""Keys of services: made once, shown once, kept as a hash, scoped, revoked, and their use noted."""

import hashlib
import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.db.models import QuerySet

from activities.api_keys import ApiKeyInvalid, ApiKeyRefused, api_key_make, api_key_revoke, api_key_verify
from activities.audit import Actor
from activities.models import ApiKey
from seize.management.base import UsageError

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 11, 8, 30, 0, 123_456, tzinfo=UTC)


def make(name: str = "checkout", scopes: tuple[str, ...] = ("read", "redeem")) -> tuple[ApiKey, str]:
    return api_key_make(name=name, scopes=scopes, by=Actor("boss"), now=NOW)


def test_key_is_256_random_bits_of_which_only_a_hash_is_kept():
    key, text = make()
    other = make("other")[1]
    head, prefix, secret = text.split("_", 2)
    assert (head, prefix, len(secret)) == ("csk", key.prefix, 43)
    assert other.split("_", 2)[2] != secret
    stored = ApiKey.objects.filter(pk=key.pk).values().get()
    assert stored["hashed"] == hashlib.sha256(secret.encode()).hexdigest()
    assert not any(secret in str(value) for value in stored.values())


def test_key_is_verified_and_its_use_noted_at_most_once_a_minute(django_assert_num_queries):
    key, text = make()
    with django_assert_num_queries(2):
        assert api_key_verify(text=text, now=NOW).pk == key.pk
    with django_assert_num_queries(1):
        api_key_verify(text=text, now=NOW + timedelta(seconds=59))
    assert ApiKey.objects.get().last_used_at == NOW
    api_key_verify(text=text, now=NOW + timedelta(minutes=1))
    assert ApiKey.objects.get().last_used_at == NOW + timedelta(minutes=1)


def test_what_is_not_exactly_the_key_is_nobodys(django_assert_num_queries):
    _key, text = make()
    _other, other = make("other")
    head, prefix, secret = text.split("_", 2)
    mixed = f"{head}_{prefix}_{other.split('_', 2)[2]}"
    for wrong in (mixed, f"csk_{'0' * 12}_{secret}", text[:-1] + ("A" if text[-1] != "A" else "B")):
        with pytest.raises(ApiKeyInvalid):
            api_key_verify(text=wrong, now=NOW)
    with django_assert_num_queries(0):  # what has not the form of a key costs the database nothing
        for wrong in ("", "csk", secret, text.upper(), text + "A", " " + text, text + "\n", "csk_ü", "x" * 10_000):
            with pytest.raises(ApiKeyInvalid):
                api_key_verify(text=wrong, now=NOW)
    assert ApiKey.objects.filter(last_used_at=None).count() == 2


def test_revoked_key_is_nobodys_at_once_and_its_name_is_not_given_again():
    key, text = make()
    api_key_revoke(key_id=key.pk, by=Actor("boss"), now=NOW)
    with pytest.raises(ApiKeyInvalid):
        api_key_verify(text=text, now=NOW)
    with pytest.raises(ApiKeyRefused, match="revoked already"):
        api_key_revoke(key_id=key.pk, by=Actor("other"), now=NOW + timedelta(days=1))
    with pytest.raises(ApiKeyRefused):
        make("checkout")
    key.refresh_from_db()
    assert (key.revoked_at, key.revoked_by) == (NOW, "boss")


def test_key_that_somebody_else_made_meanwhile_is_refused_and_not_an_error(monkeypatch):
    monkeypatch.setattr(ApiKey, "full_clean", lambda _self: None)  # it looked free
    make("taken")
    with pytest.raises(ApiKeyRefused, match="already"):
        make("taken")


def test_use_that_cannot_be_noted_is_no_reason_to_refuse(monkeypatch):
    key, text = make()

    def locked(_self, **_values):
        raise OperationalError(1205, "Lock wait timeout exceeded")

    monkeypatch.setattr(QuerySet, "update", locked)
    assert api_key_verify(text=text, now=NOW).pk == key.pk


@pytest.mark.parametrize(
    ("name", "scopes"),
    [("x", ()), ("x", ("write",)), ("x", ("read", "all")), ("", ("read",)), ("  ", ("read",)), ("x" * 101, ("read",))],
)
def test_key_without_a_name_or_a_known_scope_is_refused(name, scopes):
    with pytest.raises(ApiKeyRefused):
        make(name, scopes)
    assert ApiKey.objects.count() == 0


class TestCommand:
    def run(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command("api_key", *arguments, stdout=out)
        return out.getvalue().strip()

    def test_key_is_made_listed_and_revoked(self):
        text = self.run("--name", "checkout", "--scopes", "redeem,read")
        assert self.run("--list") == "checkout\tgood\tread,redeem\tnever used"
        api_key_verify(text=text, now=NOW)
        assert self.run("--list") == f"checkout\tgood\tread,redeem\t{NOW.isoformat(timespec='seconds')}"
        assert self.run("--revoke", "checkout") == "revoked checkout"
        assert self.run("--list").split("\t")[1] == "revoked"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--name", "x"],
            ["--scopes", "read"],
            ["--name", "x", "--scopes", "everything"],
            ["--name", "taken", "--scopes", "read"],
            ["--revoke", "nobody"],
            ["--list", "--scopes", "read"],
            ["--list", "--revoke", "taken"],
            [],
        ],
        ids=" ".join,
    )
    def test_wrong_use_changes_nothing(self, arguments):
        make("taken")
        with pytest.raises(UsageError):
            self.run(*arguments)
        assert ApiKey.objects.filter(revoked_at=None).count() == ApiKey.objects.count() == 1
