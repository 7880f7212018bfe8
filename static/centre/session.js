// The token with which this page presses. It lives in this module alone: the cookie behind it no script can read.

const EARLY_MS = 60_000;

let token = null;
let until = 0; // by the steady counter, ms
let asking = null;

export const isKnown = () => document.body.dataset.known === "1";

/** A token that is good for a minute at least; null when nobody is logged in any more. Throws when the network is away. */
export function tokenNow() {
  if (token && performance.now() < until - EARLY_MS) return Promise.resolve(token);
  asking ??= ask().finally(() => { asking = null; });
  return asking;
}

/** Forget a token that was refused. */
export function tokenForget() {
  token = null;
}

async function ask() {
  const response = await fetch("/session/token", { method: "POST", signal: AbortSignal.timeout(8000) });
  if (response.status === 401) return null;
  if (!response.ok) throw new Error(`no token: ${response.status}`);
  const body = await response.json();
  token = body.token;
  until = performance.now() + body.expires_in * 1000;
  return token;
}

/** Where to log in, and to come back from. */
export const logInPage = () => `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
