// The coupon centre: keeps the cards of this page true, by the server's clock and by the public list.

import { Card } from "./card.js";
import { Clock } from "./clock.js";
import { ask } from "./desk.js";
import { fill, jitter, say } from "./page.js";
import { isKnown, onChange, tokenNow } from "./session.js";

const EVERY_MS = 5_000;
const SETTLE_MS = 300;

const clock = new Clock();
const cards = [...document.querySelectorAll("[data-card]")].map((element) => new Card(element, clock));
const shows = document.querySelector("[data-shows]")?.dataset.shows; // the tab; none on the page of one activity
const more = document.querySelector("[data-more]");
const seen = new Set(cards.map((card) => card.id)); // what is on this page, or on one of its other pages
let isPaged = document.querySelector("[data-pages]") !== null; // and what those have is not known yet
let last = { etag: null, body: null };
let poll = null, tick = null, failures = 0;
// Whether this page knows what its shopper has; until then it asks again, more rarely while the ledger does not answer.
let isHeld = false, isHolding = false, misses = 0, holdFrom = 0;
let change = 0; // of who looks: an answer from before it is another shopper's

const draw = () => { for (const card of cards) card.draw(); };

/** Draw each second on the second, and exactly when something opens or closes. */
function ticking() {
  clearTimeout(tick);
  if (document.hidden) return;
  if (clock.hasJumped()) look();
  if (clock.isKnown) {
    draw();
    for (const card of cards) card.prepare();
  }
  const now = clock.now();
  const changes = cards.map((card) => card.changesAt).filter(Boolean);
  const next = Math.min(1000 - (now % 1000), ...changes.map((moment) => moment - now));
  tick = setTimeout(ticking, Math.max(next, 0) + 1);
}

/** Ask for stock, statuses and the time; more rarely while there is no answer. */
async function look() {
  clearTimeout(poll);
  if (document.hidden || !(cards.length || shows)) return;
  try {
    const asked = await lookUp();
    failures = 0;
    if (shows) takeList(last.body.results, asked);
    else for (const card of cards) card.take(last.body, asked);
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

/** The list, or the one activity that is here, into `last`. What has not changed comes without a body. When it was asked. */
async function lookUp() {
  // An answer without a body has no time in it either: one with a body comes as often as the clock needs it.
  const etag = clock.isFresh ? last.etag : null;
  const path = shows ? "activity/list" : `activity/${cards[0].id}`;
  // Where some shoppers see more than others, this one's list is asked for.
  const isOwn = document.body.dataset.personal === "1" && isKnown();
  let answer = await ask(path, { clock, etag, token: isOwn ? await tokenNow() : null });
  if (!isOwn && isKnown() && (shows ? answer.body?.personal : answer.status === 404)) {
    // Since now: before a card is closed by it, the same as this shopper.
    document.body.dataset.personal = "1";
    const token = await tokenNow();
    if (token === null) forget();
    else answer = await ask(path, { clock, token });
  }
  if (answer.status === 200) last = answer;
  else if (answer.status === 404 && !shows) last = { etag: null, body: null };
  else if (answer.status !== 304) throw new Error(`list: ${answer.status}`);
  return answer.asked;
}

function takeList(activities, asked) {
  const listed = new Map(activities.map((activity) => [activity.id, activity]));
  for (const card of cards) card.take(listed.get(card.id) ?? null, asked);
  for (const number of document.querySelectorAll("[data-number]")) {
    const text = String(activities.filter(({ status }) => status === number.dataset.number).length);
    if (number.textContent !== text) number.textContent = text;
  }
  const here = activities.filter(({ status }) => status === shows).map(({ id }) => id);
  if (isPaged) for (const { id, status } of activities) if (status === shows || status === "paused") seen.add(id);
  isPaged = false;
  const isMore = here.some((id) => !seen.has(id));
  if (isMore && more.hidden) say(fill("moreUp"));
  more.hidden = !isMore;
}

/** The log-in has ended: seen now, not in the second of the start. */
function forget() {
  document.body.dataset.known = "0";
  for (const card of cards) card.forget();
  draw();
}

/** What this shopper has: the newest coupons. An older one is found when its button is pressed: the win is told again. */
async function hold() {
  if (!isKnown() || isHolding || !cards.length) return;
  isHolding = true;
  const before = change;
  let rest = 0;
  try {
    const token = await tokenNow();
    if (token === null) {
      forget();
    } else {
      const { status, body, wait } = await ask("coupon/my", { clock, token });
      isHeld = status === 200 && before === change;
      if (isHeld) held(body.results);
      rest = wait;
    }
  } catch (fault) {
    rest = fault.wait ?? 0;
  } finally {
    isHolding = false;
    misses = isHeld ? 0 : misses + 1;
    holdFrom = performance.now() + Math.max(rest, Math.min(EVERY_MS * 2 ** misses, 60_000) * (0.8 + jitter(0.4)));
    if (before !== change) hold();
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
  setTimeout(() => {
    look();
    if (performance.now() >= holdFrom) hold();
    ticking();
  }, jitter(SETTLE_MS));
}

document.addEventListener("visibilitychange", wake);
// A page that comes back by the back button may be another shopper's, or nobody's any more.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
addEventListener("online", wake);
onChange(() => {
  for (const card of cards) card.forget();
  draw();
  change += 1;
  isHeld = false;
  hold();
});
hold();
look();
// The token is good before the start, not asked for in the second of the crowd.
setInterval(() => {
  if (isKnown() && !document.hidden) tokenNow().then((token) => { if (token === null) forget(); }).catch(() => {});
}, 30_000);
