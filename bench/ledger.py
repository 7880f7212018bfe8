"""What the section ``checkout`` asks about: the tests' big ledger, or a smaller one, and a key of a service.

``python -m bench.ledger COUPONS ASKED`` fills the server that DATABASE_URL names, and prints as JSON about whom and
what to ask; a process of its own, so that no Django lives in the one that measures.
"""

import json
import os
import sys
from datetime import timedelta
from typing import Any


def fill(coupons: int, *, asked: int) -> dict[str, Any]:
    """Lay out so many coupons; returns the API key, ``asked`` shoppers and as many unused coupons with their shoppers.

    Both are spread over the whole table. The coupons stay valid for longer than a measurement takes.
    """
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")
    django.setup()
    from django.core.management import call_command
    from django.utils import timezone

    from activities.api_keys import api_key_make
    from activities.models import Coupon
    from tests.big import ledger

    call_command("migrate", verbosity=0, interactive=False)
    now = timezone.now()
    ledger.fill(now=now, coupons=coupons)
    _key, text = api_key_make(name="bench", scopes=["read", "redeem"], made_by="bench")
    unused = Coupon.objects.filter(status="UNUSED", expires_at__gt=now + timedelta(hours=3))
    rows = list(unused.order_by("id").values_list("id", "user_id"))
    # 20 shoppers have 210 coupons; the last of them may have fewer than they should.
    shoppers = (coupons - ledger.BIG_COUPONS) // 210 * 20
    assert min(len(rows), shoppers) >= asked, f"{coupons} coupons are too few to ask about {asked}"
    return {
        "key": text,
        "shoppers": [ledger.shopper(number * shoppers // asked) for number in range(asked)],
        "coupons": [rows[number * len(rows) // asked] for number in range(asked)],
    }


if __name__ == "__main__":
    print(json.dumps(fill(int(sys.argv[1]), asked=int(sys.argv[2]))))
