// What an activity asks of a device before it seizes: a challenge is got and solved ahead, in a worker, and used once.

import { ask } from "./desk.js";
import { jitter, sleep } from "./page.js";
import { tokenNow } from "./session.js";

const KEPT_MS = 180_000; // a minute less than the server takes it
const PATIENCE_MS = 20_000;

let worker = null;
let number = 0;
const waiting = new Map(); // by number: who waits for the worker

/** The worker's answer: the number that solves it, or null. */
function solve(challenge) {
  worker ??= start();
  const id = (number += 1);
  return new Promise((resolve) => {
    waiting.set(id, resolve);
    worker.postMessage({ id, ...challenge });
  });
}

function start() {
  const made = new Worker(document.body.dataset.solver);
  made.onmessage = ({ data }) => {
    waiting.get(data.id)?.(data.number);
    waiting.delete(data.id);
  };
  made.onerror = () => {
    for (const resolve of waiting.values()) resolve(null);
    waiting.clear();
    worker = null;
  };
  return made;
}

/** One activity's work. */
export class Work {
  #id;
  #done = null; // promise of what to send; "" where there is nothing
  #until = 0;

  constructor(id) {
    this.#id = id;
  }

  get isReady() {
    return this.#done !== null && performance.now() < this.#until;
  }

  /** Begin, unless that was done a moment ago. */
  begin() {
    if (this.isReady) return;
    this.#until = performance.now() + KEPT_MS;
    this.#done = this.#solved().catch(() => "").then((text) => {
      if (!text) this.#until = 0; // it is tried again
      return text;
    });
  }

  /** What to send with a press, done now if need be; it is good for one coupon. */
  take() {
    this.begin();
    const done = this.#done;
    this.forget();
    return done;
  }

  /** Another shopper looks, or it was used. */
  forget() {
    this.#done = null;
  }

  async #solved() {
    for (const start = performance.now(); performance.now() - start < PATIENCE_MS;) {
      const token = await tokenNow();
      if (token === null) return "";
      const { status, body, wait } = await ask(`activity/${this.#id}/challenge`, { token });
      if (status === 200) {
        const solution = await solve(body);
        if (solution === null) return "";
        const { algorithm, challenge, salt, signature } = body;
        return btoa(JSON.stringify({ algorithm, challenge, number: solution, salt, signature }));
      }
      if (status !== 429 && status !== 503) return ""; // none is asked for any more
      await sleep(Math.max(wait, 1_000) + jitter(500));
    }
    return "";
  }
}
