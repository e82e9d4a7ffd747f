// The lists of the page: overview, nodes, gangs, recoveries, incidents. Each has `element` and `update(changed)`.

import { afterPicture, el, keyed, place } from "./dom.js";
import { grid, legend } from "./grid.js";
import {
  empty, gangTable, gangsInOrder, incidentCard, incidentsInOrder, recoveriesInOrder, recoveryTable,
} from "./lists.js";
import { model } from "./stream.js";

const SHOWN = 8; // rows of a table in the overview
const NO_GANG = "No gang has an annotation of healthd's. To let healthd restart one:";
const MARK = "kubectl annotate job NAME -n NAMESPACE healthd.dev/restart=enabled";

function heading(text, link, more) {
  return el("h2", {}, text, more ? " " : "", more ? el("a", { class: "more", href: link }, more) : null);
}

/** Fill *box* with *make()*, unless what it shows is the same text. */
function part(box, key, make) {
  if (box.dataset.shown === key) return;
  box.dataset.shown = key;
  box.replaceChildren(...make());
}

export function overview() {
  const levels = el("div", { class: "levels" });
  const attention = el("section", { "aria-label": "needs a person" });
  const recoveries = el("section");
  const gangs = el("section");
  const fleet = el("section");
  const active = recoveryTable("recoveries in progress");
  const table = gangTable();
  const cells = grid();
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Overview"), levels, attention, recoveries, gangs, fleet);
  let drawn = false;

  function update(changed) {
    const { head } = model;
    part(levels, JSON.stringify(head), () => levelsOf(head));
    const needs = attentionList();
    part(attention, JSON.stringify([needs, head.trouble !== ""]), () => needs.length
      ? [el("h2", {}, "Needs a person"), el("ul", { class: "needs" }, needs.map(([text, link]) =>
        el("li", {}, link ? el("a", { href: link }, text) : text)))]
      : [head.trouble ? el("p", { class: "level bad" }, "Whether something needs a person is not known now.")
        : el("p", { class: "fine" }, "Nothing needs a person.")]);
    const going = recoveriesInOrder().filter(([, each]) => !each.is_over);
    active.show(going);
    part(recoveries, `${going.length > 0}`, () => [heading("Recoveries in progress", place("recoveries"), "all"),
      going.length ? active.element : el("p", { class: "quiet" }, "None.")]);
    const ordered = gangsInOrder();
    table.show(ordered.slice(0, SHOWN));
    part(gangs, `${ordered.length}`, () => [heading("Gangs", place("gangs"), ordered.length > SHOWN
      ? `all ${ordered.length}` : ""), ordered.length ? table.element : empty(NO_GANG, MARK)]);
    if (!head.budget) return;
    const any = Object.keys(model.nodes).length > 0;
    part(fleet, `${any}`, () => [heading(`${head.node[0].toUpperCase()}${head.node.slice(1)}s`, place("nodes"),
      "search"), ...(any ? [legend(), cells.element] : [noNodes()])]);
    if (!drawn) afterPicture(() => { // what needs a person comes before thousands of cells
      drawn = true;
      cells.show(() => true);
    });
    else if (changed.all) cells.show(() => true);
    else if (changed.nodes) cells.update(changed.nodes);
  }
  return { element, update, title: "Overview" };
}

function noNodes() {
  return empty("There is no node to show. On Kubernetes the agent reports from each GPU node:",
    "kubectl -n healthd-system get daemonset healthd-agent");
}

function levelsOf(head) {
  const lines = head.summary.map((line) => el("p", { class: "level" }, line));
  const level = (name, each) => each && el("p", { class: `level ${each.is_bad ? "bad" : ""}` },
    el("span", { class: "label" }, name), " ", each.text);
  return [...lines, level("budget", head.budget), level("breaker", head.breaker)].filter(Boolean);
}

function attentionList() {
  const { head } = model;
  const incidents = incidentsInOrder().filter(([, each]) => each.severity === "page");
  const found = incidents.map(([, each]) => [`page: ${each.title}`, place("incidents")]);
  for (const [, { row, needs_person: needs }] of gangsInOrder()) {
    if (needs) found.push([`${row.gang} in ${row.namespace} is ${row.state}: ${row.message}`,
      place("gang", row.namespace, ...row.gang.split("/"))]);
  }
  const unhealthy = Object.entries(model.nodes).filter(([, [, state]]) => state === "unhealthy");
  for (const [name, [, , , reason]] of unhealthy.slice(0, 5)) found.push([`${name}: ${reason}`, place("node", name)]);
  if (unhealthy.length > 5) found.push([`and ${unhealthy.length - 5} more unhealthy ${head.node}s`,
    place("nodes") + "?state=unhealthy"]);
  for (const [name, level] of [["budget", head.budget], ["breaker", head.breaker]]) {
    if (level?.is_bad) found.push([`${name}: ${level.text}`, place("nodes") + "?state=in%20quarantine"]);
  }
  return found;
}

/** A search field, and a select of states, both kept in the address. */
function filters(query, states, onInput) {
  const search = el("input", { type: "search", id: "search", value: query.get("q"), autocomplete: "off" });
  const select = el("select", { id: "state" }, el("option", { value: "" }, "all"),
    states.map((state) => el("option", { value: state, selected: query.get("state") === state }, state)));
  const changed = () => {
    const given = new URLSearchParams();
    if (search.value) given.set("q", search.value);
    if (select.value) given.set("state", select.value);
    const text = given.toString();
    history.replaceState(null, "", location.hash.split("?")[0] + (text ? `?${text}` : ""));
    onInput();
  };
  search.addEventListener("input", changed);
  select.addEventListener("change", changed);
  const form = el("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    el("label", { for: "search" }, "Search"), search, el("label", { for: "state" }, "State"), select);
  return { form, text: () => search.value.toLowerCase(), state: () => select.value };
}

export function nodes(query) {
  const cells = grid();
  const count = el("p", { class: "quiet", role: "status" });
  const title = `${model.head.node[0].toUpperCase()}${model.head.node.slice(1)}s`;
  const given = filters(query, model.words.nodeStates, () => draw());
  const element = el("div", {}, el("h1", { tabindex: "-1" }, title), given.form, count, legend(),
    el("h2", { class: "unseen" }, "By failure domain"), cells.element);
  const fits = (name) => {
    const [domain, state, spare, reason] = model.nodes[name];
    const text = `${name} ${domain} ${spare} ${reason}`.toLowerCase();
    return (!given.state() || state === given.state()) && text.includes(given.text());
  };
  function draw() {
    cells.show(fits);
    tell();
  }
  function tell() {
    const all = Object.keys(model.nodes);
    const shown = all.filter(fits).length;
    const text = all.length === 0 ? "You may not see nodes, or there are none."
      : `${shown} of ${all.length}` + (shown ? "" : ": clear the search to see all");
    if (count.textContent !== text) count.textContent = text;
  }
  let drawn = false;
  return {
    element, title,
    update(changed) {
      if (!drawn || changed.all) draw();
      else if (changed.nodes) {
        cells.update(changed.nodes);
        tell();
      }
      drawn = true;
    },
  };
}

function list(title, query, states, make, entries, stateOf, nothing) {
  const table = make();
  const none = el("div");
  const given = filters(query, states, () => update());
  const element = el("div", {}, el("h1", { tabindex: "-1" }, title), given.form, none, table.element);
  function update() {
    const all = entries();
    const shown = all.filter(([key, each]) => (!given.state() || stateOf(each) === given.state())
      && `${key} ${Object.values(each.row).join(" ")}`.toLowerCase().includes(given.text()));
    table.show(shown);
    table.element.hidden = !shown.length;
    part(none, `${all.length > 0} ${shown.length > 0}`, () => shown.length ? [] : [all.length
      ? empty("Nothing fits: clear the search to see all.") : nothing()]);
  }
  return { element, update, title };
}

export function gangs(query) {
  return list("Gangs", query, model.words.gangStates, gangTable, gangsInOrder, (each) => each.row.state,
    () => empty(NO_GANG, MARK));
}

export function recoveries(query) {
  return list("Recoveries", query, ["in progress", "ended"], recoveryTable, recoveriesInOrder,
    (each) => (each.is_over ? "ended" : "in progress"), () => empty("No recovery so far."));
}

export function incidents() {
  const box = el("div");
  const none = el("div");
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Open incidents"), none, box);
  return {
    element, title: "Incidents",
    update() {
      const open = incidentsInOrder();
      keyed(box, open.map((pair) => remembered(pair)), ([key]) => key, incidentCard);
      part(none, `${open.length > 0} ${model.head.has_alerts}`, () => open.length ? [] : [model.head.has_alerts
        ? empty("No incident is open.")
        : empty("No alert service is configured, so healthd opens no incidents. Name one in the configuration:",
          "alerts: {sinks: [...]}   # docs/alerting.md")]);
    },
  };
}

const pairs = new Map();
function remembered([key, entry]) {
  if (pairs.get(key)?.[1] !== entry) pairs.set(key, [key, entry]);
  return pairs.get(key);
}
