// The page around the cards: its words, what it says aloud, and waiting.
export const words = JSON.parse(document.getElementById("words").textContent);
export const language = document.documentElement.lang;

/** A word with its gaps filled: fill("left", { n: 7 }) → "7 left". */
export const fill = (name, facts = {}) => words[name].replace(/\{(\w+)\}/g, (_, gap) => facts[gap]);

/** Say something to those who listen rather than look. The same words twice are said twice. */
export function say(text) {
  const said = document.querySelector("[data-said]");
  said.textContent = said.textContent === text ? `${text}\u00a0` : text;
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
