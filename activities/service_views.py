"""Routes for other services: coupons at checkout. By API key; a shopper's token opens nothing here."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from activities import checkout
from activities import checkout_shapes as shapes
from activities.admission import desk_now, unix_ms
from activities.audit import Actor
from activities.authentication import ApiKeyAuthentication, ScopeRequired, service_of
from activities.discounts import Quote
from activities.idempotency import idempotent_answer, kept_always
from activities.models import ApiKey, Redemption
from activities.serializers import AvailableQuery, QuoteRequest, RedeemRequest, RollBackRequest, StrictSerializer
from activities.wallet import coupon_body
from seize.problems import Problem, title_now
from seize.requests import query_parse
from seize.responses import rfc3339
from seize.rest import problem_response

NO_STORE = {"Cache-Control": "no-store"}


class ServiceView(APIView):
    """What the routes of services share: who may call, and how a refusal is answered."""

    authentication_classes = (ApiKeyAuthentication,)
    permission_classes = (ScopeRequired,)
    scope: ClassVar[str]


class CouponAvailableView(ServiceView):
    """``GET /market/inner/coupon/available?user_id=&amount=``: a shopper's coupons for an order, best first."""

    scope = ApiKey.Scope.READ

    @shapes.AVAILABLE
    def get(self, request: Request) -> Response:
        query = query_parse(request.query_params, allowed=("user_id", "amount"))
        asked = _parsed(AvailableQuery, query).validated_data
        now = desk_now()
        found = checkout.coupons_available(**asked, now=now)
        body = {
            "server_time": rfc3339(unix_ms(now)),
            "amount": f"{asked['amount']:.2f}",
            "usable": [{**coupon_body(coupon, now=now), **_quote_body(quote)} for coupon, quote in found.usable],
            "unusable": [{**coupon_body(coupon, now=now), **_reason_body(why)} for coupon, why in found.unusable],
            "complete": found.complete,
        }
        return Response(body, headers=NO_STORE)


class CouponQuoteView(ServiceView):
    """``POST /market/inner/coupon/quote``: what redeeming would take off; a dry run."""

    scope = ApiKey.Scope.READ

    @shapes.QUOTE
    def post(self, request: Request) -> Response:
        asked = _parsed(QuoteRequest, request.data).validated_data
        quoted = checkout.coupon_quote(**asked, now=desk_now())
        if isinstance(quoted, checkout.Refused):
            return _problem(request, _refusal(quoted))
        body = {
            "code": "USABLE",
            "coupon_id": str(asked["coupon_id"]),
            "order_amount": f"{quoted.amount:.2f}",
            **_quote_body(quoted),
        }
        return Response(body, headers=NO_STORE)


class CouponRedeemView(ServiceView):
    """``POST /market/inner/coupon/redeem``: use a coupon for an order."""

    scope = ApiKey.Scope.REDEEM

    @shapes.REDEEM
    def post(self, request: Request) -> Response:
        return _written(request, _parsed(RedeemRequest, request.data), checkout.coupon_redeem)


class CouponRollBackView(ServiceView):
    """``POST /market/inner/coupon/roll-back``: an order gives its coupon back."""

    scope = ApiKey.Scope.REDEEM

    @shapes.ROLL_BACK
    def post(self, request: Request) -> Response:
        # "Not redeemed" only holds so far: a redeem that is still on its way may arrive.
        is_final = _is_success
        return _written(request, _parsed(RollBackRequest, request.data), checkout.coupon_roll_back, is_final=is_final)


def _parsed(serializer: type[StrictSerializer], data: Any) -> StrictSerializer:
    """The validated request.

    :raises rest_framework.exceptions.ValidationError: with every field that is wrong.
    """
    made = serializer(data=data)
    made.is_valid(raise_exception=True)
    return made


def _is_success(response: Response) -> bool:
    return response.status_code < 400


def _written(
    request: Request,
    wanted: StrictSerializer,
    write: Callable[..., checkout.Written],
    *,
    is_final: Callable[[Response], bool] = kept_always,
) -> Response:
    """Carry out a write, once for each Idempotency-Key: 201 entered now, 200 the same entry again, else why not."""
    service = service_of(request)
    assert service is not None  # ScopeRequired

    def answer() -> Response:
        written = write(**wanted.validated_data, by=Actor(service.made_by), now=desk_now())
        if isinstance(written, checkout.Refused):
            return _problem(request, _refusal(written))
        return Response(_entry_body(written.entry), 200 if written.replay else 201, headers=NO_STORE)

    answered = idempotent_answer(request, caller=service.made_by, payload=wanted.data, answer=answer, is_final=is_final)
    return _problem(request, answered) if isinstance(answered, Problem) else answered


def _problem(request: Request, problem: Problem) -> Response:
    return problem_response(request, replace(problem, headers={**problem.headers, **NO_STORE}))


def _refusal(refused: checkout.Refused) -> Problem:
    return Problem(refused.why.name, members=refused.facts)


def _reason_body(refused: checkout.Refused) -> dict[str, str]:
    return {"reason": refused.why.name, "reason_title": title_now(refused.why.name)}


def _quote_body(quote: Quote) -> dict[str, str]:
    return {"discount": f"{quote.discount:.2f}", "payable": f"{quote.payable:.2f}"}


def _entry_body(entry: Redemption) -> Mapping[str, str]:
    """An entry of the ledger; nothing in it depends on when it is asked for."""
    body = {
        "coupon_id": str(entry.coupon_id),
        "user_id": str(entry.user_id),
        "order_id": entry.order_id,
        "order_amount": f"{entry.order_amount:.2f}",
        "discount": f"{entry.discount:.2f}",
        "payable": f"{entry.payable:.2f}",
    }
    if entry.entry == Redemption.Entry.REDEEM:
        return {"code": "REDEEMED", **body, "redeemed_at": _time(entry.created_at)}
    return {
        "code": "ROLLED_BACK",
        **body,
        "status": entry.restored_to.lower(),
        "reason": entry.reason,
        "rolled_back_at": _time(entry.created_at),
    }


def _time(moment: datetime) -> str:
    return rfc3339(unix_ms(moment))
