// The token with which this page presses. It lives in this module alone: the cookie behind it no script can read.

import { retryAfter } from "./page.js";

const EARLY_MS = 60_000;

let token = null;
let until = 0; // by the steady counter, ms
let asking = null;
let forgotten = 0; // a token that was asked for before is the former shopper's

export const isKnown = () => document.body.dataset.known === "1";

/** Why there is no token at the moment, and for how long (ms) the server wants to be left alone. Nothing was pressed. */
export class NoToken extends Error {
  constructor(why, wait = 0) {
    super(why);
    this.wait = wait;
  }
}

/** A token that is good for a minute at least; null when nobody is logged in any more. Throws NoToken. */
export function tokenNow() {
  if (token && performance.now() < until - EARLY_MS) return Promise.resolve(token);
  if (asking) return asking;
  const mine = ask().finally(() => { if (asking === mine) asking = null; });
  asking = mine;
  return mine;
}

/** Forget a token that was refused, or is another shopper's, and the one that is on its way. */
export function tokenForget() {
  token = asking = null;
  forgotten += 1;
}

async function ask() {
  const before = forgotten;
  let response, body;
  try {
    response = await fetch("/session/token", { method: "POST", signal: AbortSignal.timeout(8000) });
    if (response.status === 401) return null;
    if (response.ok) body = await response.json();
  } catch (fault) {
    throw new NoToken(fault.message);
  }
  if (!body) throw new NoToken(response.status, retryAfter(response));
  if (before === forgotten) {
    token = body.token;
    until = performance.now() + body.expires_in * 1000;
  }
  return body.token;
}

/** Where to log in, and to come back from. */
export const logInPage = () => `/login?next=${encodeURIComponent(location.pathname + location.search)}`;

// The windows of a browser share one log-in, but each has a token of its own. A page that comes after a log-out or a
// log-in tells the others, which ask anew whose they are.
const windows = new BroadcastChannel("shopper");
if (!isKnown() || document.referrer.startsWith(`${location.origin}/login`)) windows.postMessage("changed");

/** Told when somebody went or came in another window; the token is forgotten by then. */
export function onChange(tell) {
  windows.addEventListener("message", () => {
    if (!isKnown()) return;
    tokenForget();
    tell();
  });
}
