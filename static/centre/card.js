// One activity on the page: its countdown, its stock, and a button that opens by the server's clock.

import { seize } from "./desk.js";
import { duration, fill, jitter, momentText, say } from "./page.js";
import { isKnown, logInPage } from "./session.js";
import { Work } from "./work.js";

const AHEAD_MS = 20_000; // work is done by then before the start,
const SPREAD_MS = 90_000; // and begun in this time before that, not by everybody at once;
const AFTER_MS = 60_000; // tried again until then after it, and later only when somebody comes near the button
const STALE_MS = 2_000; // the list is at most a second old, and a second under way

export class Card {
  #element; #clock; #button; #note; #when; #bar; #leftText; #name;
  #isOpen = null; // was it, when it was last drawn?
  #pressing = null; // what the button says while an answer is awaited
  #until = 0; // closed for this shopper until then, server's ms
  #refusal = "";
  #refusedIn = ""; // the state in which that was said; it is not said in another
  #looker = 0; // who pressed: another one after somebody logged out or in
  #waits = 0; // of this press; only the last one counts down
  #waitsFor = ""; // what was said of them
  #soldOutAt = -Infinity; // when that was told, by the steady counter: older lists know more coupons
  #work; #workAhead = AHEAD_MS + jitter(SPREAD_MS);
  #keptOutAt = null; // when a press was told that this shopper is not let in, by the steady counter
  #isUnsure = false; // pressed, and no answer came: only asking again tells, whatever the list says

  constructor(element, clock) {
    this.#element = element;
    this.#clock = clock;
    this.#button = element.querySelector("[data-press]");
    this.#note = element.querySelector("[data-note]");
    this.#when = element.querySelector("[data-when]");
    this.#bar = element.querySelector("[data-bar]");
    this.#leftText = element.querySelector("[data-left-text]");
    this.#name = element.querySelector("h2").textContent.trim();
    this.id = element.dataset.card;
    this.status = element.dataset.status;
    this.startsAt = Number(element.dataset.starts);
    this.endsAt = Number(element.dataset.ends);
    this.limit = Number(element.dataset.limit);
    this.total = Number(element.dataset.total);
    this.left = element.dataset.left === undefined ? null : Number(element.dataset.left);
    this.challenge = element.dataset.challenge;
    this.isSoon = element.dataset.soon === "1"; // announced, and not open to this shopper
    this.held = 0; // seqs up to this one are this shopper's
    this.#work = new Work(this.id);
    // A site that only verifies another issuer's tokens has no log-in, and its cards no button.
    this.#button?.addEventListener("click", () => this.press());
    for (const near of ["pointerenter", "pointerdown", "focus"]) {
      this.#button?.addEventListener(near, () => this.prepare({ isNear: true }));
    }
  }

  /** What the list says of it, and when it was asked; null: it is in the list no more. */
  take(activity, asked) {
    if (activity === null) {
      this.status = "ended";
      return;
    }
    this.status = activity.status;
    this.startsAt = Date.parse(activity.starts_at);
    this.endsAt = Date.parse(activity.ends_at);
    if (!activity.stock_left || asked > this.#soldOutAt + STALE_MS) this.left = activity.stock_left;
    this.total = activity.stock_total;
    this.limit = activity.per_user_limit;
    this.challenge = activity.challenge;
    this.isSoon = activity.coming_soon;
    if (asked > this.#keptOutAt + STALE_MS) this.#keptOutAt = null;
  }

  /** Coupons of it that this shopper is known to have: all seqs up to the highest. */
  hold(seq) {
    this.held = Math.max(this.held, seq);
  }

  /** Somebody else looks now, or nobody who is known: what the last one had, asked and was told is not theirs. */
  forget() {
    this.held = 0;
    this.#isUnsure = false;
    this.#keptOutAt = null;
    this.#refusal = "";
    this.#looker += 1;
    this.#work.forget();
  }

  /** The next moment at which it looks otherwise by itself, server's ms; 0: none. */
  get changesAt() {
    const now = this.#clock.now();
    return [this.startsAt, this.endsAt, this.#until].filter((moment) => moment > now).sort((a, b) => a - b)[0] ?? 0;
  }

  #state() {
    const now = this.#clock.now();
    if (this.held >= this.limit) return "yours";
    if (this.#isUnsure) return "open";
    if (this.isSoon) return "soon";
    if (this.#keptOutAt !== null) return "notOpen";
    if (this.status === "voided" || this.status === "ended" || now >= this.endsAt) return "ended";
    if (this.status === "paused") return "paused";
    if (now < this.startsAt) return "notStarted";
    if (this.left === 0) return this.held ? "yours" : "soldOut";
    return now < this.#until ? "later" : "open";
  }

  /** Do the work that this activity asks for before it is needed: ahead of the start, or when the button is near. */
  prepare({ isNear = false } = {}) {
    if (this.challenge !== "always" || !this.#button || !isKnown() || document.hidden) return;
    if (this.#pressing !== null) return;
    const state = this.#state(), toStart = this.startsAt - this.#clock.now();
    if (state === "notStarted" && toStart < this.#workAhead) this.#work.begin();
    if (state === "open" && (isNear || toStart > -AFTER_MS)) this.#work.begin();
  }

  async press() {
    if (this.#pressing !== null || this.#state() !== "open") return;
    if (!isKnown()) {
      location.assign(logInPage());
      return;
    }
    this.#pressing = fill("seizing");
    this.#refusal = "";
    this.draw();
    const looker = this.#looker, isWished = () => looker === this.#looker;
    try {
      const result = await seize({
        id: this.id, seq: this.held + 1, clock: this.#clock, waiting: (why, ms) => this.#wait(why, ms), isWished,
        work: this.#work, isWorkAsked: this.challenge === "always",
      });
      if (isWished()) this.#told(result);
    } finally {
      this.#pressing = null;
      this.#waits += 1;
      this.#waitsFor = "";
      this.draw();
    }
  }

  /** By the steady counter: how long a wait is does not change when the server's time becomes better known. */
  #wait(why, ms) {
    const end = performance.now() + ms, id = (this.#waits += 1);
    this.#note.textContent = fill(why);
    if (why !== this.#waitsFor) say(fill(why)); // said once, however often it is asked again
    this.#waitsFor = why;
    const count = () => {
      const left = end - performance.now();
      if (id !== this.#waits) return;
      this.#pressing = left > 0 ? fill("again", { n: Math.ceil(left / 1000) }) : fill("seizing");
      this.draw();
      if (left > 0) setTimeout(count, Math.min(left, 1000));
    };
    count();
  }

  #told({ kind, isFresh, body, wait, isOwn }) {
    const wasUnsure = this.#isUnsure;
    this.#isUnsure = kind === "offline";
    switch (kind) {
      case "won":
        this.hold(body.seq);
        if (isFresh || wasUnsure) say(fill("won", { name: this.#name }));
        else say(fill("held", { n: this.held, limit: this.limit })); // won before, and told again
        return;
      case "busy":
        this.#isUnsure = wasUnsure;
        this.#until = this.#clock.now() + wait;
        this.#refuse(fill(isOwn ? "tooOften" : "tooBusy"));
        return;
      case "stranger":
        location.assign(logInPage());
        return;
      case "offline":
        this.#refuse(fill("offline"));
        return;
    }
    switch (body.code) {
      case "LIMIT_REACHED":
        this.held = body.held; // fewer than thought when somebody else logged in, in another window
        if (this.held < this.limit) break;
        say(fill("held", { n: this.held, limit: this.limit }));
        return;
      case "SOLD_OUT":
        this.left = 0;
        this.#soldOutAt = performance.now();
        break;
      case "NOT_ELIGIBLE":
        this.#keptOutAt = performance.now();
        document.body.dataset.personal = "1"; // others are let in: this shopper's own list tells when that changes
        break;
      case "ENDED": this.status = "ended"; break;
      case "VOIDED": this.status = "voided"; break;
      case "UNKNOWN_ACTIVITY": this.status = "ended"; break;
      case "NOT_STARTED": this.startsAt = Date.parse(body.starts_at); break;
      case "PAUSED": this.#until = this.#clock.now() + wait; break;
    }
    this.#refuse(body.title);
  }

  #refuse(text) {
    this.#refusal = text;
    this.#refusedIn = closedBy(this.#state());
    say(text);
  }

  /** Put on the page what holds now. Only what is different is written. */
  draw() {
    const now = this.#clock.now(), state = this.#state();
    const labels = {
      yours: () => fill("yours"), ended: () => fill("ended"), paused: () => fill("paused"), soldOut: () => fill("soldOut"),
      notStarted: () => fill("notStarted"), soon: () => fill("soon"),
      notOpen: () => fill("notOpen"),
      later: () => fill("later", { n: Math.ceil((this.#until - now) / 1000) }),
      open: () => fill(!isKnown() ? "logIn" : this.held ? "more" : "seize"),
    };
    const shown = this.#pressing === null ? state : "seizing";
    if (this.#button) {
      write(this.#button, this.#pressing ?? labels[state]());
      mark(this.#button, "aria-disabled", String(shown !== "open"));
    }
    mark(this.#element, "data-state", shown);
    if (this.#pressing === null) {
      write(this.#note, this.#noteOf(state, now) || (this.#button || state === "open" ? "" : labels[state]()));
    }
    this.#drawWhen(now);
    if (this.left !== null) {
      write(this.#leftText, fill("left", { n: this.left }));
      const percent = Math.min(100, Math.ceil((100 * this.left) / this.total));
      if (this.#bar.value !== percent) this.#bar.value = percent;
    }
    const isOpen = state === "open";
    if (isOpen && this.#isOpen === false) say(fill("open", { name: this.#name }));
    this.#isOpen = isOpen;
  }

  #drawWhen(now) {
    const isAhead = now < this.startsAt, moment = isAhead ? this.startsAt : this.endsAt, text = momentText(moment);
    if (text === null) return;
    write(this.#when, isAhead ? fill("from", { moment: text.slice(5) }) : fill("until", { moment: text }));
    mark(this.#when, "datetime", new Date(moment).toISOString());
  }

  #noteOf(state, now) {
    if (state === "notStarted") return fill("startsIn", { t: duration(this.startsAt - now) });
    if (this.#refusal && closedBy(state) === this.#refusedIn && state !== "yours") return this.#refusal;
    if (this.held) return fill("held", { n: this.held, limit: this.limit });
    if (state === "open" && this.endsAt - now < 86_400_000) return fill("endsIn", { t: duration(this.endsAt - now) });
    return "";
  }
}

/** "Again in 7 s" is the pause, told by the desk before the list tells it; or the crowd. */
const closedBy = (state) => (state === "later" ? "paused" : state);

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function mark(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
