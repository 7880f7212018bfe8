"""The gate: the seize route in front of Django, with group commit. Same parser, outcomes, problems and headers.

``couponsite/asgi.py`` puts it in front of Django; ``SEIZE_GATE=off`` leaves the reference view alone in place.
It remembers no outcome: a remembered "sold out" would be told to a winner who lost the answer.
"""

from collections.abc import Callable
from dataclasses import replace

import orjson

from seize.asking import asking_of
from seize.authentication import WWW_AUTHENTICATE
from seize.batching import Lanes
from seize.fronts import Answer, Headers, PlainRequest, answer_of, nobody_leaves, plain_request, problem_answer
from seize.limits import visit_pace
from seize.outcomes import Outcome, Refused, Won
from seize.problems import Problem, pace_headers, problem_of_fault
from seize.requests import BODY_MAX_BYTES, RequestInvalid, seize_request_parse
from seize.responses import refused_problem, won_response
from seize.store import Fault, StoreBusy
from seize.tokens import TokenInvalid, bearer_verify

# As long as the shortest Retry-After. Reading on at once from thousands of connections
# that do not listen kept one process from everything else: a hundredth of its peak was left at ten times the load.
SHED_REST_S = 1.0
PATH = b"/market/consumer/coupon/seize"
_ALLOW = b"POST, OPTIONS"
_WON_HEADERS = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


class SeizeShortcut:
    """``POST /market/consumer/coupon/seize`` as :class:`seize.views.CouponSeizeView` answers it."""

    method = b"POST"

    def __init__(self, lanes: Lanes, *, close: Callable[[], None]) -> None:
        self.lanes = lanes
        self.close = close

    def take(
        self, path: bytes, query: bytes, headers: Headers, *, secure: bool, peer: str = ""
    ) -> "SeizeTicket | None":
        """A ticket for a plain request with a short JSON body; everything else is Django's."""
        if path != PATH:
            return None
        request = plain_request(headers, secure=secure, peer=peer)
        if request is None or not _has_short_json(request):
            return None
        return SeizeTicket(self.lanes, request)


def _has_short_json(request: PlainRequest) -> bool:
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    length = request.headers.get(b"content-length", b"")
    return kind == b"application/json" and length.isdigit() and int(length) <= BODY_MAX_BYTES


class SeizeTicket:
    """One press of the button."""

    __slots__ = ("_asking", "_done", "lanes", "request")

    def __init__(self, lanes: Lanes, request: PlainRequest) -> None:
        self.lanes, self.request = lanes, request

    def start(self, body: bytes, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Shed, refuse, or join the activity's lane."""
        if self.lanes.is_full:
            done(self._shed())
            return nobody_leaves
        try:
            user_id = bearer_verify(self.request.authorization)
            wanted = seize_request_parse(body)
        except TokenInvalid:
            done(self._wrong(Problem("UNAUTHENTICATED", headers={"WWW-Authenticate": WWW_AUTHENTICATE})))
            return nobody_leaves
        except RequestInvalid as error:
            done(self._wrong(Problem("INVALID_REQUEST", detail=str(error))))
            return nobody_leaves
        self._asking = asking_of(wanted=wanted, user_id=user_id, address=self.request.address)
        if self._asking.is_in_vain:
            problem = Problem("TOO_MANY_REQUESTS", headers=pace_headers(self._asking.pace))
            done(self._rested(self._problem(problem)))
            return nobody_leaves
        if self._asking.pace is not None and self.lanes.is_crowded:
            done(self._shed())
            return nobody_leaves
        self._done: Callable[[Answer], None] | None = done
        waiting = self.lanes.submit(
            activity_id=wanted.activity_id,
            shopper=self._asking.shopper,
            done=self._answered,
            is_late=self._asking.pace is not None,
        )

        def leave() -> None:
            waiting.left = True

        return leave

    def _answered(self, outcome: Outcome | Fault | None) -> None:
        # Whoever is told holds this ticket: letting go leaves no cycle for the collector.
        done, self._done = self._done, None
        if done is not None:
            answer = self._answer(outcome)
            # Who asks too often is read more slowly, also when it is a win that is told again and again.
            done(answer if self._asking.pace is None else self._rested(answer))

    def _answer(self, outcome: Outcome | Fault | None) -> Answer:
        if isinstance(outcome, Won):
            status, body = won_response(outcome)
            return answer_of(self.request, status=status, body=orjson.dumps(body), allow=_ALLOW, headers=_WON_HEADERS)
        if isinstance(outcome, Refused):
            return self._problem(refused_problem(self._asking.told(outcome)))
        return self._problem(Problem("INTERNAL_ERROR") if outcome is None else problem_of_fault(outcome))

    def _wrong(self, problem: Problem) -> Answer:
        """What is no press counts as a visit, as it does behind this."""
        pace = visit_pace(address=self.request.address)
        if pace is None:
            return self._problem(problem)
        return self._rested(self._problem(Problem("TOO_MANY_REQUESTS", headers=pace_headers(pace))))

    def _rested(self, answer: Answer) -> Answer:
        """Read its client more slowly from now on; but not a proxy, whose next request is somebody else's."""
        is_clients_own = self.request.address == self.request.peer
        return replace(answer, rest_s=SHED_REST_S) if is_clients_own else answer

    def _shed(self) -> Answer:
        return replace(self._problem(problem_of_fault(StoreBusy("too many wait"))), rest_s=SHED_REST_S)

    def _problem(self, problem: Problem) -> Answer:
        return problem_answer(self.request, problem, allow=_ALLOW)
