// The worker that does activities' work: find the number whose SHA-256 behind the salt is the challenge. Each message
// is all that is wanted now, the most urgent first: what it leaves out is dropped, what it puts behind goes on later.

const CHUNK = 256;
const encoder = new TextEncoder();
const breath = new MessageChannel();

let jobs = [];
let isWorking = false;

self.onmessage = ({ data }) => {
  const begun = new Map(jobs.map((job) => [job.id, job]));
  jobs = data.map((wanted) => begun.get(wanted.id) ?? { ...wanted, next: 0 });
  if (!isWorking) work();
};

async function work() {
  isWorking = true;
  while (jobs.length) {
    await listen();
    if (!jobs.length) break;
    const job = jobs[0];
    let number;
    try {
      number = await step(job);
    } catch {
      number = null; // without TLS browsers give out no crypto
    }
    if (number === undefined || !jobs.includes(job)) continue;
    jobs = jobs.filter((other) => other !== job);
    self.postMessage({ id: job.id, number });
  }
  isWorking = false;
}

/** Let a message come in: digests that follow each other leave it no gap. */
const listen = () => new Promise((resolve) => {
  breath.port1.onmessage = resolve;
  breath.port2.postMessage(null);
});

/** The next numbers of a job: the one that solves it, null where there is none, undefined while that is not known. */
async function step(job) {
  const { salt, next, maxnumber } = job;
  if (next > maxnumber) return null;
  job.wanted ??= Uint8Array.from(job.challenge.match(/../g), (pair) => parseInt(pair, 16));
  const numbers = Array.from({ length: Math.min(CHUNK, maxnumber - next + 1) }, (_, place) => next + place);
  const digests = await Promise.all(numbers.map((n) => crypto.subtle.digest("SHA-256", encoder.encode(salt + n))));
  job.next += CHUNK;
  return numbers[digests.findIndex((digest) => isSame(new Uint8Array(digest), job.wanted))];
}

const isSame = (one, other) => one.every((byte, place) => byte === other[place]);
