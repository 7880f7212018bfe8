// The API as a page asks it. No cookie goes along, so no other site can ask in a shopper's name.

import { jitter, language, retryAfter, sleep } from "./page.js";
import { NoToken, tokenForget, tokenNow } from "./session.js";

const TIMEOUT_MS = 8_000;
const PATIENCE_MS = 90_000;
const SOON_MS = 5_000;
const CHALLENGES_MAX = 3;

/**
 * One question: { status, body, wait (ms, of Retry-After), policy (the limit that was met), etag, asked (when, by the
 * steady counter) }. Throws when no whole answer came. With an etag that still holds the answer is 304, without a body and
 * without the server's time.
 */
export async function ask(path, { clock, token, body, etag, timeout = TIMEOUT_MS } = {}) {
  const headers = { "Accept-Language": language };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  if (etag) headers["If-None-Match"] = etag;
  const asked = performance.now();
  const response = await fetch(`/market/consumer/${path}`, {
    method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, credentials: "omit", cache: "no-store",
    signal: AbortSignal.timeout(timeout),
  });
  const answered = performance.now();
  const answer = response.status === 304 ? null : await response.json();
  if (clock && answer?.server_time) clock.take(answer.server_time, asked, answered);
  const policy = /^"([^"]*)"/.exec(response.headers.get("RateLimit") ?? "")?.[1];
  return {
    status: response.status, body: answer, wait: retryAfter(response), policy, etag: response.headers.get("ETag"), asked,
  };
}

/**
 * Press for one coupon until it is known what came of it. The same seq each time: however often it is asked, and
 * wherever an answer is lost, it is one wish.
 *
 * @param {(why: "unsure" | "busy" | "tooOften" | "working", ms: number) => void} waiting  told before each wait
 * @param {Work} work  what the activity may ask of this device
 * @param {boolean} isWorkAsked  whether it is known to
 * @param {() => boolean} isWished  false when whoever pressed has gone: nobody else must win by that press
 * @returns {{ kind: "won" | "refused" | "offline" | "busy" | "stranger" | "gone", isFresh?: boolean, body?: object,
 *   wait?: number, isOwn?: boolean }}  "busy": nothing was decided, and `wait` ms should pass; `isOwn`: this shopper asked
 *   too often, not the crowd. "offline": something may have been.
 */
export async function seize({ id, seq, clock, waiting, isWished, work, isWorkAsked }) {
  const start = performance.now();
  let losses = 0, strange = 0, refusals = 0, challenges = 0;
  if (isWorkAsked && !work.isDone && !work.isVain) waiting("working", 0);
  let altcha = isWorkAsked ? await work.take() : "";
  for (;;) {
    if (!isWished()) return { kind: "gone" };
    const answer = await wish({ id, seq, clock, altcha, isWished });
    if (!isWished()) return { kind: "gone" };
    let why = "busy", wait;
    if (answer === null) {
      losses += 1;
      why = "unsure";
      wait = Math.min(500 * 2 ** losses, 8_000);
      wait = wait / 2 + jitter(wait / 2);
    } else if (answer.status === 200 || answer.status === 201) {
      return { kind: "won", isFresh: answer.status === 201 || losses > 0, ...answer };
    } else if (answer.status === 401) {
      if (answer.token === null) return { kind: "stranger" };
      tokenForget();
      strange += 1;
      if (strange > 1) return { kind: "stranger" };
      wait = 0;
    } else if (answer.body.code?.startsWith("CHALLENGE_") && challenges < CHALLENGES_MAX && !work.isVain) {
      challenges += 1;
      waiting("working", 0);
      altcha = await work.take();
      wait = 0;
    } else if (isPassing(answer, clock)) {
      refusals += 1;
      if (isOwn(answer)) why = "tooOften";
      wait = Math.max(answer.wait || Math.min(500 * 2 ** refusals, 8_000), 1_000) + jitter(500);
    } else {
      return { kind: "refused", ...answer };
    }
    if (performance.now() - start + wait > PATIENCE_MS) {
      return losses ? { kind: "offline" } : { kind: "busy", wait, isOwn: why === "tooOften" };
    }
    if (wait) waiting(why, wait);
    await sleep(wait);
  }
}

/** One press: its answer; null when it was sent and no answer came. Without a token nothing was sent: 503, or 401. */
async function wish({ id, seq, clock, altcha, isWished }) {
  let token;
  try {
    token = await tokenNow();
  } catch (fault) {
    if (!(fault instanceof NoToken)) throw fault;
    return { status: 503, body: {}, wait: fault.wait };
  }
  if (!isWished()) return null; // it may be the newcomer's
  if (token === null) return { status: 401, token };
  try {
    return await ask("coupon/seize", { clock, token, body: altcha ? { id, seq, altcha } : { id, seq } });
  } catch {
    return null;
  }
}

/** Whether it is this shopper that asked too often; the limits of an activity and of the site are the crowd's. */
const isOwn = ({ status, policy }) => status === 429 && !["activity", "site"].includes(policy);

/** Whether asking again will help: the server is busy or coming back, or the start is a moment away. */
function isPassing({ status, body }, clock) {
  if (status === 503 || status === 429 || status === 502 || status === 504) return true;
  return body.code === "NOT_STARTED" && Date.parse(body.starts_at) - clock.now() < SOON_MS;
}
