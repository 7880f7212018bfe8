"""From where a request comes: the connection's own end, or what a proxy that is believed says of it."""

import functools
import ipaddress
import re
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest

from seize.frozen import settings_cached

_PORT = re.compile(r"^(?:\[([^\]]+)\](?::\d+)?|([\d.]+):\d+)$")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Proxies(NamedTuple):
    """``is_behind``: somebody is believed; ``known``: only these, or, where it is empty, whoever connects."""

    is_behind: bool
    known: tuple[Network, ...]


@settings_cached
def _proxies() -> _Proxies:
    known = tuple(ipaddress.ip_network(text) for text in settings.TRUSTED_PROXIES)
    return _Proxies(settings.BEHIND_PROXY or bool(known), known)


def address_of(*, peer: str, forwarded: str) -> str:
    """The client's address as text.

    :param peer: the other end of the connection; '' for a Unix socket.
    :param forwarded: ``X-Forwarded-For``. Each proxy adds its own peer at the end, so it is read from there: the first
        that is no proxy of ours is the client, and what stands before it anybody can have written. Without
        ``TRUSTED_PROXIES`` there is one proxy, and the last entry is what it says.
    """
    proxies = _proxies()
    if not proxies.is_behind or not forwarded or not _is_proxy(peer, proxies.known):
        return peer
    entries = [entry.strip() for entry in forwarded.split(",") if entry.strip()]
    if not proxies.known:
        return entries[-1] if entries else peer
    return next((entry for entry in reversed(entries) if not _is_proxy(entry, proxies.known)), peer)


def client_address(request: HttpRequest) -> str:
    """The client's address, of a request as Django has it, or REST framework."""
    meta = request.META
    return address_of(peer=meta.get("REMOTE_ADDR", ""), forwarded=meta.get("HTTP_X_FORWARDED_FOR", ""))


def _is_proxy(address: str, known: tuple[Network, ...]) -> bool:
    if not known or not address:
        return True
    found = _parsed(address)
    return found is not None and any(found in network for network in known)


@functools.lru_cache(maxsize=4096)
def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    bare = _PORT.sub(r"\1\2", address)  # some proxies add the port
    try:
        found = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


@functools.lru_cache(maxsize=4096)
def network_of(address: str) -> str | None:
    """What is limited as one client: an IPv4 address, or the /64 that one connection is given of IPv6.

    None for this host itself, a Unix socket, and what is no address: behind a proxy that is not believed everybody
    would be the same client.
    """
    found = _parsed(address)
    if found is None or found.is_loopback:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
