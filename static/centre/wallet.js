// My coupons: those on their way become coupons within about a second; look until they have, or the session is over.

import { logInPage, onChange } from "./session.js";

const FIRST_MS = 1_000, LAST_MS = 15_000;
let rest = FIRST_MS;

async function look() {
  const wallet = document.querySelector("[data-wallet]");
  if (!("waiting" in wallet.dataset)) return;
  if (!document.hidden) {
    try {
      const response = await fetch(location.href, { signal: AbortSignal.timeout(8000) });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.querySelector("[data-wallet]");
      if (response.ok && fresh) {
        wallet.replaceWith(document.adoptNode(fresh));
      } else if (response.ok) { // without a session that page is the log-in
        location.assign(logInPage());
        return;
      }
    } catch {
      // Looked for again below.
    }
  }
  rest = Math.min(rest * 1.5, LAST_MS);
  setTimeout(look, rest);
}

setTimeout(look, rest);
onChange(() => location.reload()); // another shopper's coupons, or nobody's
