// The coupon centre: keeps the cards of this page true, by the server's clock and by the public list.

import { Card } from "./card.js";
import { Clock } from "./clock.js";
import { ask } from "./desk.js";
import { jitter } from "./page.js";
import { isKnown, tokenNow } from "./session.js";

const EVERY_MS = 5_000;
const SETTLE_MS = 300;

const clock = new Clock();
const cards = [...document.querySelectorAll("[data-card]")].map((element) => new Card(element, clock));
let poll = null, tick = null, failures = 0;
// Whether this page knows what its shopper has; until then it asks again, more rarely while the ledger does not answer.
let isHeld = false, isHolding = false, misses = 0, holdFrom = 0;

const draw = () => { for (const card of cards) card.draw(); };

/** Draw each second on the second, and exactly when something opens or closes. */
function ticking() {
  clearTimeout(tick);
  if (document.hidden) return;
  if (clock.hasJumped()) look();
  if (clock.isKnown) draw();
  const now = clock.now();
  const changes = cards.map((card) => card.changesAt).filter(Boolean);
  const next = Math.min(1000 - (now % 1000), ...changes.map((moment) => moment - now));
  tick = setTimeout(ticking, Math.max(next, 0) + 1);
}

/** Ask the list for stock, statuses and the time; more rarely while it does not answer. */
async function look() {
  clearTimeout(poll);
  if (document.hidden || !cards.length) return;
  try {
    const { status, body } = await ask("activity/list", { clock });
    if (status !== 200) throw new Error(`list: ${status}`);
    failures = 0;
    const listed = new Map(body.results.map((activity) => [activity.id, activity]));
    for (const card of cards) card.take(listed.get(card.id) ?? null);
    ticking();
  } catch {
    failures += 1;
  }
  if (!isHeld && performance.now() >= holdFrom) hold();
  // Nothing opens before the time is known: that is asked for sooner.
  const rest = clock.isKnown ? Math.min(EVERY_MS * 2 ** failures, 60_000) : 1_000;
  clearTimeout(poll);
  poll = setTimeout(look, rest * 0.8 + jitter(rest * 0.4));
}

/** The log-in has ended: seen now, not in the second of the start. */
function forget() {
  document.body.dataset.known = "0";
  for (const card of cards) card.held = 0;
  draw();
}

/** What this shopper has: the newest coupons. An older one is found when its button is pressed: the win is told again. */
async function hold() {
  if (!isKnown() || isHolding) return;
  isHolding = true;
  let rest = 0;
  try {
    const token = await tokenNow();
    if (token === null) {
      forget();
    } else {
      const { status, body, wait } = await ask("coupon/my", { clock, token });
      if (status === 200) held(body.results);
      isHeld = status === 200;
      rest = wait;
    }
  } catch (fault) {
    rest = fault.wait ?? 0;
  } finally {
    isHolding = false;
    misses = isHeld ? 0 : misses + 1;
    holdFrom = performance.now() + Math.max(rest, Math.min(EVERY_MS * 2 ** misses, 60_000) * (0.8 + jitter(0.4)));
  }
}

function held(coupons) {
  for (const coupon of coupons) {
    for (const card of cards) if (card.id === coupon.activity_id) card.hold(coupon.seq);
  }
  draw();
}

function wake() {
  if (document.hidden) {
    clearTimeout(poll);
    clearTimeout(tick);
    return;
  }
  failures = 0;
  // A moment later: a phone that wakes has no network yet.
  setTimeout(() => { look(); hold(); ticking(); }, jitter(SETTLE_MS));
}

document.addEventListener("visibilitychange", wake);
// A page that comes back by the back button may be another shopper's, or nobody's any more.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
addEventListener("online", wake);
hold();
look();
// The token is good before the start, not asked for in the second of the crowd.
setInterval(() => {
  if (isKnown() && !document.hidden) tokenNow().then((token) => { if (token === null) forget(); }).catch(() => {});
}, 30_000);
