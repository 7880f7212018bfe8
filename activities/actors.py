"""Who acts in the back office, by the request."""

from django.http import HttpRequest

from activities.audit import Actor
from seize.addresses import client_address


def actor_of(request: HttpRequest) -> Actor:
    """The person who is logged in, and from where.

    The address is the connection's own; a proxy in front is believed only where the site says so.
    """
    user_id = request.user.pk
    return Actor(request.user.get_username(), user_id=user_id, address=client_address(request))
