// The tables of gangs, recoveries and incidents.

import { el, keyed, place } from "./dom.js";
import { model } from "./stream.js";
import { age, since, tone } from "./words.js";

/** A state as text with a colour. */
export function badge(state) {
  return el("span", { class: `badge ${tone(state)}` }, state);
}

/** A duration that grows: `app.js` turns it every second. */
export function ticking(text, after = "") {
  if (!text) return "";
  return el("time", { datetime: text, "data-since": text, "data-after": after }, age(since(text)) + after);
}

export function gangLink(namespace, name) {
  return el("a", { href: place("gang", namespace, ...name.split("/")) }, name);
}

export function recoveryLink(namespace, name) {
  return el("a", { href: place("recovery", namespace, name) }, name);
}

export function nodeLink(name) {
  return model.head?.budget ? el("a", { href: place("node", name) }, name) : name;
}

/** The cells of a gang, in the order of the columns that the server names. */
function gangCells({ row, stake_since: stake }) {
  return [
    row.namespace,
    gangLink(row.namespace, row.gang),
    badge(row.state),
    `${row.running}/${row.members}`,
    `${row.nodes}`,
    row.step === null ? "" : `${row.step}`,
    ticking(row.saved, " ago"),
    age(row.interval),
    ticking(stake),
    `${row.attempt}`,
    row.recovery ? recoveryLink(row.namespace, row.recovery) : "",
    row.message,
  ];
}

function recoveryCells({ row }) {
  return [
    row.namespace,
    recoveryLink(row.namespace, row.recovery),
    gangLink(row.namespace, row.gang),
    badge(row.phase),
    row.cause,
    row.node ? nodeLink(row.node) : "",
    row.from_step === null ? "" : `${row.from_step}`,
    ticking(row.began),
    age(row.running_after),
    age(row.took),
    `${row.attempt}`,
    Object.entries(row.spares).sort().map(([bad, spare]) => `${bad} -> ${spare}`).join(", "),
    row.message,
  ];
}

/** A table that keeps its rows. Returns the element, and a function that shows other entries: [key, entry] each. */
function table(label, columns, cells) {
  const body = el("tbody");
  const head = el("tr", {}, columns.map(([title, wide]) => el("th", { scope: "col", class: wide && "wide" }, title)));
  const whole = el("table", { "aria-label": label }, el("thead", {}, head), body);
  const make = ([, entry]) =>
    el("tr", {}, cells(entry).map((cell, at) =>
      el("td", { "data-label": columns[at][0], class: [columns[at][1] && "wide", cell === "" && "empty"]
        .filter(Boolean).join(" ") || null }, cell)));
  const rows = new Map(); // key -> [key, entry], the same array while the entry is the same
  const show = (entries) => {
    const items = entries.map(([key, entry]) => {
      if (rows.get(key)?.[1] !== entry) rows.set(key, [key, entry]);
      return rows.get(key);
    });
    keyed(body, items, ([key]) => key, make);
  };
  return { element: el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, whole), show };
}

export function gangTable(label = "gangs") {
  return table(label, model.words.gangColumns, gangCells);
}

export function recoveryTable(label = "recoveries") {
  return table(label, model.words.recoveryColumns, recoveryCells);
}

/** Those that need a person first, then by namespace and name: the order of `healthd gangs`. */
export function gangsInOrder() {
  const rank = new Map(model.words.gangStates.map((state, at) => [state, at]));
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return Object.entries(model.gangs).sort(([, { row: a }], [, { row: b }]) =>
    rank.get(a.state) - rank.get(b.state) || order(a.namespace, b.namespace) || order(a.gang, b.gang));
}

/** Those that go on first, held ones before all others; each the newest first: the order of `healthd recoveries`. */
export function recoveriesInOrder() {
  const key = ({ is_over: over, row }) => (over ? 2 : row.phase === "Held" ? 0 : 1);
  return Object.entries(model.recoveries).sort(([, a], [, b]) =>
    key(a) - key(b) || Date.parse(b.row.began) - Date.parse(a.row.began));
}

export function incidentsInOrder() {
  return Object.entries(model.incidents).sort(([, a], [, b]) =>
    (a.severity !== "page") - (b.severity !== "page") || Date.parse(b.opened) - Date.parse(a.opened));
}

/** One open incident, with what is left to do. */
export function incidentCard([, each]) {
  return el("article", { class: `card ${tone(each.severity)}` },
    el("h2", {}, badge(each.severity), " ", each.title),
    el("p", { class: "quiet" }, "open for ", ticking(each.opened), each.gang ? ", " : "",
      each.gang ? gangLink(each.namespace, each.gang) : "", each.namespace ? ` in ${each.namespace}` : ""),
    each.nodes.length ? el("p", {}, `${model.head.node}s: `, each.nodes.flatMap((name, at) =>
      [at ? ", " : "", nodeLink(name)])) : null,
    each.happened ? el("p", {}, each.happened) : null,
    each.did ? el("p", {}, each.did) : null,
    each.todo ? el("p", { class: "todo" }, el("strong", {}, "To do: "), each.todo) : null,
    each.command ? el("pre", {}, each.command) : null);
}

/** What to show where there is nothing: what that means, and what to do. */
export function empty(text, command = "") {
  return el("div", { class: "nothing" }, el("p", {}, text), command ? el("pre", {}, command) : null);
}
