"""The same endpoint in FastAPI: redis.asyncio, PyJWT, one EVALSHA a request."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import jwt
import orjson
from answers import SCRIPT, answer, keys_of, problem
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from redis.asyncio import Redis

SECRET = os.environ["JWT_SIGNING_KEY"]
redis = Redis.from_url(os.environ["REDIS_URL"])
seize_script = redis.register_script(SCRIPT)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Close the pool at the end."""
    yield
    await redis.aclose()


app = FastAPI(lifespan=lifespan, openapi_url=None)


class Wanted(BaseModel):
    """The body."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,18}$")]
    seq: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


async def shopper(request: Request) -> str:
    """The user id that the token proves."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise HTTPException(401)
    try:
        claims = jwt.decode(token, SECRET, algorithms=["HS256"], options={"require": ["exp", "user_id"]})
    except jwt.InvalidTokenError:
        raise HTTPException(401) from None
    if claims.get("token_type") != "access":
        raise HTTPException(401)
    return str(claims["user_id"])


def respond(status: int, body: dict[str, object]) -> Response:
    """JSON as orjson writes it; a Response of one's own is what FastAPI answers fastest."""
    kind = "application/json" if status < 300 else "application/problem+json"
    return Response(orjson.dumps(body), status, {"Cache-Control": "no-store"}, kind)


@app.post("/market/consumer/coupon/seize")
async def seize(wanted: Wanted, user_id: Annotated[str, Depends(shopper)]) -> Response:
    """Claim one coupon for the caller."""
    reply = await seize_script(keys=keys_of(wanted.id), args=[wanted.id, 0, user_id, wanted.seq or 0, 0])
    return respond(*answer(reply, wanted.id))


@app.exception_handler(RequestValidationError)
async def invalid(_request: Request, _error: RequestValidationError) -> Response:
    """A bad body."""
    return respond(400, problem("INVALID_REQUEST", 400, "The request is not valid."))


@app.exception_handler(HTTPException)
async def refused(_request: Request, _error: HTTPException) -> Response:
    """A bad token."""
    return respond(401, problem("UNAUTHENTICATED", 401, "Please log in."))
