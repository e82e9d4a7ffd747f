// The connection: events of the server, applied to one model. It tries again by itself.

import { setNow } from "./words.js";

const SILENT_MS = 40000; // the server gives a sign of life every 15 s
const HIDDEN_MS = 10000; // a tab that is hidden for so long needs no connection
const FIRST_MS = 500;
const LAST_MS = 15000;
const TABLES = ["nodes", "gangs", "recoveries", "incidents"];
const KEY = "healthd-key";

/** Everything that the page knows. */
export const model = { head: null, words: null, nodes: {}, gangs: {}, recoveries: {}, incidents: {}, at: 0 };

/** The key or token that the page sends, from the address `#key=…` or from the form. It stays in this tab. */
export const credentials = {
  get() {
    const given = /^#key=([^&]+)$/.exec(location.hash);
    if (given) {
      sessionStorage.setItem(KEY, decodeURIComponent(given[1]));
      history.replaceState(null, "", location.pathname + "#/");
    }
    return sessionStorage.getItem(KEY);
  },
  set(token) {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  },
};

/** Ask the server. Throws an Error with the status and the server's reason. */
export async function ask(path, signal) {
  const token = credentials.get();
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  const why = await answer.json().then((body) => body.error, () => answer.statusText);
  throw Object.assign(new Error(why), { status: answer.status });
}

/** Keep the model up to date for ever. *onChange* gets what changed; *onStatus* whether it is connected, and why not. */
export async function follow(onChange, onStatus) {
  let wait = FIRST_MS;
  for (;;) {
    const began = Date.now();
    let why = "the connection has ended";
    let status = 0;
    try {
      await read(await nextStream(), (event, body) => {
        wait = FIRST_MS;
        onStatus({ connected: true });
        if (event !== "alive") onChange(apply(event, body));
      });
      if (Date.now() - began > 5000) continue; // the server ends a stream now and then, to ask again what may be seen
    } catch (error) {
      if (asleep) {
        await new Promise((done) => (wake = done));
        continue;
      }
      status = error.status ?? 0;
      why = status ? error.message : "the server does not answer";
    }
    const delay = wait * (0.75 + Math.random() / 2);
    onStatus({ connected: false, why, status, next: Date.now() + delay });
    await until(delay);
    wait = Math.min(LAST_MS, wait * 2);
  }
}

let hurry = () => {};

/** Try again now. */
export function retry() {
  hurry();
}

function until(delay) {
  return new Promise((done) => {
    hurry = done;
    setTimeout(done, delay);
  });
}

let abort = null;
let asleep = false;
let wake = () => {};

/** Give the connection back while nobody looks: a browser has six for all tabs of one site together. */
function sleep() {
  asleep = true;
  abort?.abort();
}

function awake() {
  asleep = false;
  wake();
  hurry();
}

let leaving = 0;
addEventListener("pagehide", sleep);
addEventListener("pageshow", awake);
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(sleep, HIDDEN_MS);
  else if (asleep) awake();
});

async function openStream() {
  abort = new AbortController();
  const answer = await ask("api/stream", abort.signal);
  return answer.body.pipeThrough(new TextDecoderStream()).getReader();
}

/** The stream that was asked for when this module was loaded, and after it a new one each time. */
function nextStream() {
  const opened = early ?? openStream();
  early = null;
  return opened;
}

let early = openStream(); // the state is on its way while the other modules are still compiled
early.catch(() => {}); // `follow` says why

async function read(reader, onEvent) {
  let rest = "";
  let timer = 0;
  try {
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENT_MS);
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const [first, second] = part.split("\n");
        onEvent(first.slice("event: ".length), JSON.parse(second.slice("data: ".length)));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the names of what changed, and of a change the tables of changed keys. */
function apply(event, body) {
  setNow(body.now);
  model.at = Date.now();
  if (event === "state") {
    Object.assign(model, { head: body.head, words: body.words });
    for (const table of TABLES) model[table] = body[table];
    return { all: true };
  }
  if (body.head) model.head = body.head;
  for (const table of TABLES) {
    for (const [key, entry] of Object.entries(body[table] ?? {})) {
      if (entry === null) delete model[table][key];
      else model[table][key] = entry;
    }
  }
  return body;
}
