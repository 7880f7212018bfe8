// What an activity asks of a device before it seizes: a challenge is got and solved ahead, in a worker, and used once.

import { ask } from "./desk.js";
import { jitter, sleep } from "./page.js";
import { tokenNow } from "./session.js";

const KEPT_MS = 180_000; // a minute less than the server takes it
const PATIENCE_MS = 20_000;
const SOLVING_MS = 30_000; // a worker that has found nothing by then is stuck, or the device is too slow
const PAUSE_MS = 2_000; // after work that came to nothing, twice as long each time,
const PAUSE_MAX_MS = 60_000; // and no longer
const FAILURES_MAX = 2; // of the worker in a row; then this device cannot

let worker = null;
let failures = 0;
let number = 0;
let jobs = []; // { id, challenge, resolve }, the most urgent first: the worker has the same
let watched = null, watch = null; // the one that is worked on, and for how long

const isVain = () => failures >= FAILURES_MAX;

/** The worker's answer: the number that solves it; null where there is none, or when nobody wants it any more. */
function solve(challenge, made) {
  if (made.signal.aborted || isVain()) return null;
  return new Promise((resolve) => {
    made.job = { id: (number += 1), challenge, resolve };
    jobs = made.isUrgent ? [made.job, ...jobs] : [...jobs, made.job];
    made.signal.addEventListener("abort", () => end(made.job, null));
    order();
  });
}

/** Somebody has pressed and waits for it. */
function hurry(made) {
  made.isUrgent = true;
  if (!jobs.includes(made.job)) return;
  jobs = [made.job, ...jobs.filter((job) => job !== made.job)];
  order();
}

/** Tell the worker what is wanted now, and watch over what it does first. */
function order() {
  try {
    if (jobs.length) worker ??= start();
  } catch {
    failures += 1;
    lose(jobs);
    return;
  }
  worker?.postMessage(jobs.map(({ id, challenge }) => ({ id, ...challenge })));
  if (watched === jobs[0]) return;
  clearTimeout(watch);
  watched = jobs[0];
  if (watched) watch = setTimeout(stuck, SOLVING_MS);
}

function end(job, solution) {
  if (!jobs.includes(job)) return;
  jobs = jobs.filter((other) => other !== job);
  job.resolve(solution);
  order();
}

/** The worker is no good: these came to nothing, the others go to the next one. */
function lose(lost) {
  worker?.terminate();
  worker = null;
  jobs = jobs.filter((job) => !lost.includes(job));
  for (const job of lost) job.resolve(null);
  order();
}

function start() {
  const made = new Worker(document.body.dataset.solver);
  made.onmessage = ({ data }) => {
    const job = jobs.find(({ id }) => id === data.id);
    if (!job) return; // dropped meanwhile
    failures = data.number === null ? failures + 1 : 0;
    end(job, data.number);
  };
  made.onerror = () => {
    if (made !== worker) return;
    failures += 1;
    lose(jobs);
  };
  return made;
}

function stuck() {
  failures += 1;
  lose([watched]);
}

/** One activity's work. */
export class Work {
  #id;
  #made = null; // { text: promise of what to send, "" where there is nothing; isDone, isUrgent, until, … }
  #stop = new AbortController(); // of what was made last, also of what was taken
  #pause = PAUSE_MS;
  #from = 0; // it is not begun ahead before then

  constructor(id) {
    this.#id = id;
  }

  /** Whether this device cannot, as far as this page knows. */
  get isVain() {
    return isVain();
  }

  /** Whether it is done, and still good. */
  get isDone() {
    return this.#isGood && this.#made.isDone;
  }

  get #isGood() {
    return this.#made !== null && performance.now() < this.#made.until;
  }

  /** Begin ahead, unless it is done or under way, or came to nothing a moment ago. */
  begin() {
    if (!this.#isGood && !isVain() && performance.now() >= this.#from) this.#make();
  }

  /** What to send with a press, done now if need be; it is good for one coupon. */
  async take() {
    if (!this.#isGood) {
      if (isVain()) return "";
      this.#make();
    }
    const made = this.#made;
    this.#made = null;
    hurry(made);
    return made.text;
  }

  /** Another shopper looks. */
  forget() {
    this.#made = null;
    this.#stop.abort();
  }

  #make() {
    this.#stop.abort(); // what it had is too old
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    const made = { signal, isDone: false, isUrgent: false, job: null, until: performance.now() + KEPT_MS, wait: 0 };
    const dropped = new Promise((resolve) => signal.addEventListener("abort", () => resolve("")));
    const solved = this.#solved(made).catch(() => "").then((text) => this.#told(made, text));
    made.text = Promise.race([solved, dropped]);
    this.#made = made;
  }

  #told(made, text) {
    if (made.signal.aborted) return "";
    made.isDone = text !== "";
    if (made.isDone) {
      this.#pause = PAUSE_MS;
    } else {
      made.until = 0;
      this.#from = performance.now() + Math.max(this.#pause, made.wait);
      this.#pause = Math.min(2 * this.#pause, PAUSE_MAX_MS);
    }
    return text;
  }

  async #solved(made) {
    const start = performance.now();
    for (let pause = 1_000; ; pause *= 2) {
      const token = await tokenNow();
      if (token === null || made.signal.aborted) return "";
      const { status, body, wait } = await ask(`activity/${this.#id}/challenge`, { token });
      if (status === 200) {
        const solution = await solve(body, made);
        if (solution === null) return "";
        const { algorithm, challenge, salt, signature } = body;
        return btoa(JSON.stringify({ algorithm, challenge, number: solution, salt, signature }));
      }
      if (status !== 429 && status !== 503) return ""; // none is asked for any more
      made.wait = wait;
      const rest = Math.max(wait, pause) + jitter(500);
      if (performance.now() - start + rest > PATIENCE_MS) return "";
      await sleep(rest);
    }
  }
}
