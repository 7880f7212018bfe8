// The server's clock, as well as it can be known here. The device's own may be an hour wrong, or be set meanwhile:
// only its steady counter is used, and only to tell how much time has passed since an answer.

const KEPT_MS = 10 * 60_000;
const FRESH_MS = 60_000;
const SLEPT_MS = 1_500;

export class Clock {
  #samples = []; // { at, ahead, error }: by the steady counter, ms
  #wall = Date.now() - performance.now();

  /** An answer's server_time, and the steady counter when it was asked for and when it came. */
  take(serverTime, asked, answered) {
    const server = Date.parse(serverTime);
    if (Number.isNaN(server)) return;
    const error = (answered - asked) / 2;
    this.#samples.push({ at: answered, ahead: server - (asked + error), error });
    this.#samples = this.#samples.filter((sample) => answered - sample.at < KEPT_MS).slice(-20);
  }

  get isKnown() {
    return this.#samples.length > 0;
  }

  /** Whether an answer told the time within the last minute: one that tells none will do for now. */
  get isFresh() {
    return this.isKnown && performance.now() - this.#samples.at(-1).at < FRESH_MS;
  }

  /** Unix ms by the server. The quickest answer is the surest; each minute makes one less sure. */
  now() {
    const counter = performance.now();
    let best = null;
    for (const sample of this.#samples) {
      const doubt = sample.error + (counter - sample.at) / 2000;
      if (best === null || doubt < best.doubt) best = { doubt, ahead: sample.ahead };
    }
    return counter + (best ? best.ahead : this.#wall);
  }

  /** Whether the steady counter stood still, as in a device that slept; or the device's clock was set. Forgets all. */
  hasJumped() {
    const wall = Date.now() - performance.now();
    if (Math.abs(wall - this.#wall) < SLEPT_MS) return false;
    this.#wall = wall;
    this.#samples = [];
    return true;
  }
}
