// The page around the cards: its words, what it says aloud, and waiting.
export const words = JSON.parse(document.getElementById("words").textContent);
export const language = document.documentElement.lang;

/** A word with its gaps filled: fill("left", { n: 7 }) → "7 left". */
export const fill = (name, facts = {}) => words[name].replace(/\{(\w+)\}/g, (_, gap) => facts[gap]);

let saying = [];

/** Say something to those who listen rather than look: all that happens in a moment, and the same words twice as well. */
export function say(text) {
  saying.push(text);
  if (saying.length > 1) return;
  queueMicrotask(() => {
    const said = document.querySelector("[data-said]"), words = saying.join(" ");
    saying = [];
    said.textContent = said.textContent === words ? `${words}\u00a0` : words;
  });
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Between 0 and ms: a crowd that was refused must not come back as one. */
export const jitter = (ms) => Math.random() * ms;

/** How long an answer asks to wait, ms; 0 when it does not say, or gives a date as a proxy may. */
export function retryAfter(response) {
  const ms = Number(response.headers.get("Retry-After") || 0) * 1000;
  return Number.isFinite(ms) ? ms : 0;
}

export const twoDigits = (number) => String(number).padStart(2, "0");

/** "00:01:05", or "2 d 00:01:05". */
export function duration(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const clock = [Math.floor((s % 86400) / 3600), Math.floor((s % 3600) / 60), s % 60].map(twoDigits).join(":");
  return s >= 86400 ? fill("days", { n: Math.floor(s / 86400), t: clock }) : clock;
}

const zone = document.body.dataset.zone;
let moments = null;

/** A moment in the site's zone as the page writes it, "2026-11-11 00:00"; null where the browser does not know the zone. */
export function momentText(ms) {
  try {
    moments ??= new Intl.DateTimeFormat("en-CA", {
      timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
    });
    const part = Object.fromEntries(moments.formatToParts(ms).map(({ type, value }) => [type, value]));
    return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}`;
  } catch {
    return null;
  }
}
