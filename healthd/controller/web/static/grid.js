// The fleet: a cell for each node, by failure domain. Arrow keys move in it; it is one stop of the Tab key.

import { afterPicture, el, keyed, place } from "./dom.js";
import { model } from "./stream.js";
import { byName, NODE_SIGNS } from "./words.js";

const FIRST = 400; // cells that are made at once: more than a window shows
const SLICE = 2500; // the others are made in slices of so many: input and pictures come between two
const whenIdle = window.requestIdleCallback ?? ((act) => setTimeout(act, 500)); // Safari has none

/** A grid. `show(filter)` shows the nodes that it accepts; `update(nodes)` those that changed. */
export function grid() {
  const whole = el("div", { class: "grid", onkeydown: move, onpointerover: hint });
  const domains = new Map(); // domain -> {title, box, names}
  let shown = new Map(); // node name -> its domain
  let cells = new Map(); // node name -> {cell, entry}: its cell, once it is made, and what that shows
  let items = new Map(); // domain -> [domain, names]: the same while it has the same nodes
  let empty = []; // domains whose cells are to be made
  let accepts = () => true;

  function show(filter) {
    const focused = whole.contains(document.activeElement) ? document.activeElement : null;
    accepts = filter;
    arrange();
    keyed(whole, [...items.values()], ([domain]) => domain, section);
    for (const name of cells.keys()) repaint(name);
    for (const domain of items.keys()) count(domain);
    empty = [...items.keys()].filter((domain) => !domains.get(domain).isFull);
    fill(document.hidden ? Infinity : FIRST);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    if (empty.length) afterPicture(goOn);
    else settle();
  }

  /** Which nodes are shown in which domain, in order. A domain with the same nodes as before keeps its item. */
  function arrange() {
    shown = new Map();
    const parts = new Map();
    for (const name of Object.keys(model.nodes).filter(accepts).sort(byName)) {
      const domain = model.nodes[name][0];
      shown.set(name, domain);
      if (!parts.has(domain)) parts.set(domain, []);
      parts.get(domain).push(name);
    }
    const before = items;
    items = new Map([...parts.keys()].sort(byName).map((domain) => {
      const former = before.get(domain);
      return [domain, former && same(former[1], parts.get(domain)) ? former : [domain, parts.get(domain)]];
    }));
    for (const domain of domains.keys()) if (!items.has(domain)) domains.delete(domain);
    cells = new Map([...cells].filter(([name]) => shown.has(name)));
  }

  function section([domain, names]) {
    const title = el("h3");
    const box = el("div", { class: "cells", role: "group" });
    domains.set(domain, { title, box, names, isFull: false });
    return el("section", { class: "domain" }, title, box);
  }

  /** Make the cells of domains until there are *enough* more. */
  function fill(enough) {
    for (let made = 0; empty.length && made < enough;) {
      const at = domains.get(empty.shift());
      at.box.replaceChildren(...at.names.map(cellOf));
      at.isFull = true;
      made += at.names.length;
    }
    rove();
  }

  function goOn() {
    if (!empty.length) return;
    fill(SLICE);
    if (empty.length) afterPicture(goOn);
    else settle();
  }

  /** Domains out of sight are laid out when there is time, so that scrolling need not do it. */
  function settle() {
    whenIdle(() => whole.classList.add("settled"), { timeout: 2000 });
  }

  function cellOf(name) {
    const known = cells.get(name);
    if (known) return known.cell;
    const entry = model.nodes[name];
    const cell = painted(name, entry);
    cells.set(name, { cell, entry });
    return cell;
  }

  /** Show the state of a node, unless its cell shows it. The cell stays the same one: it may have the focus. */
  function repaint(name) {
    const known = cells.get(name);
    const entry = model.nodes[name];
    if (known.entry === entry || same(known.entry, entry)) return; // after a new connection all entries are new
    const fresh = painted(name, entry);
    known.entry = entry;
    known.cell.className = fresh.className;
    known.cell.setAttribute("aria-label", fresh.getAttribute("aria-label"));
    known.cell.textContent = fresh.textContent;
  }

  function count(domain) {
    const { title, box, names } = domains.get(domain);
    const counts = new Map();
    for (const name of names) {
      const state = model.nodes[name]?.[1];
      if (state) counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    const said = model.words.nodeStates.filter((state) => counts.has(state))
      .map((state) => `${counts.get(state)} ${state}`).join(", ");
    const label = domain || (domains.size > 1 ? "no failure domain" : `all ${model.head.node}s`);
    title.replaceChildren(label, " ", el("span", { class: "quiet" }, said));
    box.setAttribute("aria-label", `${label}: ${said}`);
  }

  function update(changed) {
    const touched = new Set();
    for (const [name, entry] of Object.entries(changed)) {
      const stays = entry !== null && accepts(name);
      if (shown.has(name) !== stays || (stays && shown.get(name) !== entry[0])) return show(accepts);
      if (!stays) continue;
      if (cells.has(name)) repaint(name);
      touched.add(entry[0]);
    }
    touched.forEach(count);
  }

  function rove() {
    if (!whole.querySelector('.cell[tabindex="0"]')) whole.querySelector(".cell")?.setAttribute("tabindex", "0");
  }

  function move(event) {
    const at = document.activeElement;
    if (!at.classList.contains("cell")) return;
    const to = target(at, event.key);
    if (!to) return;
    event.preventDefault();
    at.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  }

  function target(at, key) {
    const all = [...whole.querySelectorAll(".cell")];
    const index = all.indexOf(at);
    if (key === "ArrowRight") return all[index + 1];
    if (key === "ArrowLeft") return all[index - 1];
    if (key === "Home") return all[0];
    if (key === "End") return all[all.length - 1];
    if (key !== "ArrowDown" && key !== "ArrowUp") return null;
    const { left, top } = at.getBoundingClientRect();
    const rows = key === "ArrowDown" ? all.slice(index + 1) : all.slice(0, index).reverse();
    return rows.find((each) => {
      const other = each.getBoundingClientRect();
      return Math.abs(other.left - left) < 8 && Math.abs(other.top - top) > 8;
    });
  }

  return { element: whole, show, update };
}

const looks = new Map(); // state and kind of spare -> a cell without a name, to be copied

/** A new cell. Each step counts: there are thousands, and few looks. */
function painted(name, [, state, spare, reason]) {
  const key = `${state}|${spare}`;
  let look = looks.get(key);
  if (!look) {
    const kind = `cell ${state.replaceAll(" ", "-")}${spare ? " spare" : ""}`;
    look = el("a", { tabindex: "-1", class: kind }, NODE_SIGNS[state] || (spare ? "s" : ""));
    looks.set(key, look);
  }
  const cell = look.cloneNode(true);
  cell.setAttribute("href", place("node", name));
  cell.setAttribute("aria-label", `${name}: ${state}${spare && `, ${spare}`}${reason && `, ${reason}`}`);
  return cell;
}

function same(one, other) {
  return one.length === other.length && one.every((each, at) => each === other[at]);
}

/** What a cell says, under the pointer. Thousands of titles would take time to set, and most are never seen. */
function hint({ target: at }) {
  if (at.classList.contains("cell")) at.title = at.getAttribute("aria-label");
}

/** What the signs mean. */
export function legend() {
  const states = model.words.nodeStates.map((state) =>
    el("li", {}, el("span", { class: `cell ${state.replaceAll(" ", "-")}`, "aria-hidden": "true" },
      NODE_SIGNS[state]), state));
  const spare = el("li", {}, el("span", { class: "cell healthy spare", "aria-hidden": "true" }, "s"), "spare");
  return el("ul", { class: "legend", "aria-label": "signs" }, states, spare);
}
