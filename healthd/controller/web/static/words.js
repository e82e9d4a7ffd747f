// Words and times, as the terminal writes them.

let ahead = 0; // milliseconds that the server's clock is ahead of this one

/** Take the server's time from an event. */
export function setNow(text) {
  const at = Date.parse(text);
  if (Number.isFinite(at)) ahead = at - Date.now();
}

/** The present, by the server's clock. */
export function now() {
  return Date.now() + ahead;
}

const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]];

/** Seconds as `7s`, `2m13s`, `45m`, `3h20m`, `12d`; empty for null. As `age` of healthd.core.report.listing.ages. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.trunc(seconds));
  for (const [size, unit, smaller, name] of UNITS) {
    if (whole >= size) {
      const count = Math.trunc(whole / size);
      const rest = whole % size;
      return `${count}${unit}` + (count < 10 && rest >= smaller ? `${Math.trunc(rest / smaller)}${name}` : "");
    }
  }
  return `${whole}s`;
}

export function since(text) {
  return text ? (now() - Date.parse(text)) / 1000 : null;
}

/** `14:03:11`, in UTC as in the log. */
export function clock(text) {
  return text ? new Date(Date.parse(text)).toISOString().slice(11, 19) : "";
}

/** `2026-01-31 14:03:11`, in UTC. */
export function moment(text) {
  return text ? new Date(Date.parse(text)).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "";
}

// A state is shown by a sign and a colour: the sign alone suffices.
export const NODE_SIGNS = {
  "unhealthy": "!", "in quarantine": "×", "not ready": "–", "unknown": "?", "cordoned": "/", "degraded": "~",
  "healthy": "",
};
const BAD = new Set(["invalid", "held", "gave up", "stopped", "failed", "unhealthy", "Held", "GaveUp", "page"]);
const BUSY = new Set(["restarting", "starting", "in quarantine", "not ready", "degraded", "unknown"]);
const GOOD = new Set(["running", "complete", "healthy", "Recovered"]);

/** bad, busy, good or calm: the colour of a state. */
export function tone(state) {
  if (BAD.has(state)) return "bad";
  if (GOOD.has(state)) return "good";
  return BUSY.has(state) || /^(Detected|Stopping|Fencing|Choosing|Reserving|Starting|Confirming)$/.test(state)
    ? "busy" : "calm";
}

/**
 * The order of names, in which 2 comes before 10. For `sort`. An Intl.Collator does it, too, but to make one takes a
 * browser longer than to sort 5,000 names.
 */
export function byName(one, other) {
  let at = 0;
  while (at < one.length && one.charCodeAt(at) === other.charCodeAt(at)) at++;
  while (at > 0 && isDigit(one, at - 1)) at--; // to where the number begins
  const least = numberAt(one, at) - numberAt(other, at);
  if (least) return least; // neither 0 nor NaN
  return one < other ? -1 : one > other ? 1 : 0;
}

function isDigit(text, at) {
  const code = text.charCodeAt(at);
  return code >= 48 && code <= 57;
}

/** The number that begins there; NaN where none does. */
function numberAt(text, at) {
  let found = isDigit(text, at) ? 0 : NaN;
  for (; isDigit(text, at); at++) found = 10 * found + text.charCodeAt(at) - 48;
  return found;
}
