// The worker that does an activity's work: find the number whose SHA-256 behind the salt is the challenge.

const CHUNK = 256;

self.onmessage = async ({ data: { id, salt, challenge, maxnumber } }) => {
  try {
    self.postMessage({ id, number: await solve(salt, challenge, maxnumber) });
  } catch {
    self.postMessage({ id, number: null }); // without TLS browsers give out no crypto
  }
};

async function solve(salt, challenge, maxnumber) {
  const wanted = Uint8Array.from(challenge.match(/../g), (pair) => parseInt(pair, 16));
  const encoder = new TextEncoder();
  for (let first = 0; first <= maxnumber; first += CHUNK) {
    const numbers = Array.from({ length: Math.min(CHUNK, maxnumber - first + 1) }, (_, place) => first + place);
    const digests = await Promise.all(numbers.map((n) => crypto.subtle.digest("SHA-256", encoder.encode(salt + n))));
    const place = digests.findIndex((digest) => isSame(new Uint8Array(digest), wanted));
    if (place >= 0) return numbers[place];
  }
  return null;
}

const isSame = (one, other) => one.every((byte, place) => byte === other[place]);
