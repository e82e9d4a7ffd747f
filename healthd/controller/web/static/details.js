// The pages of one gang, one recovery, one node. They are read again when their entry changes.

import { el } from "./dom.js";
import { badge, empty, gangLink, gangTable, nodeLink, recoveryLink, recoveryTable, ticking } from "./lists.js";
import { ask, model } from "./stream.js";
import { age, clock, moment } from "./words.js";

const NOTHING = Symbol("nothing is shown yet"); // what is in no list has no entry, and a page all the same

/** A page that asks for *path* and shows it with *draw*. *entryOf* finds what makes it out of date. */
function detail(title, path, entryOf, draw) {
  const body = el("div", {}, el("p", { class: "quiet" }, "Loading…"));
  const element = el("div", {}, el("h1", { tabindex: "-1" }, title), body);
  let shown = NOTHING;
  let asking = false;
  async function update(changed) {
    const entry = entryOf();
    if (asking || (shown === entry && !changed?.all)) return;
    asking = true;
    shown = entry;
    try {
      const answer = await (await ask(path)).json();
      body.replaceChildren(...draw(answer.is, entry).filter(Boolean));
    } catch (error) {
      const why = error.status ? error.message : "the server does not answer; the page tries again by itself";
      body.replaceChildren(el("p", { role: "alert" }, why), el("p", {}, el("a", { href: "#/" }, "To the overview")));
      if (error.status !== 404) shown = NOTHING;
    } finally {
      asking = false;
    }
    if (shown !== NOTHING && shown !== entryOf()) await update();
  }
  return { element, update, title };
}

function query(fields) {
  return new URLSearchParams(fields).toString();
}

function sections(given) {
  return given.map(([title, lines], at) => el("section", {}, el(at ? "h2" : "p", { class: at ? null : "headline" }, title),
    lines.length ? el("pre", { class: "text" }, lines.join("\n")) : null));
}

function links(title, found, make) {
  return found.length ? el("section", {}, el("h2", {}, title), el("p", { class: "links" },
    found.flatMap((each, at) => [at ? ", " : "", make(each)]))) : null;
}

function recoveriesOf(keys) {
  if (!keys.length) return null;
  const table = recoveryTable();
  table.show(keys.filter((key) => model.recoveries[key]).map((key) => [key, model.recoveries[key]]));
  return el("section", {}, el("h2", {}, "Recoveries"), table.element);
}

export function gang(namespace, ...rest) {
  const name = rest.join("/");
  const key = `${namespace}/${name}`;
  const newest = () => model.gangs[key];
  return detail(`${name} in ${namespace}`, `api/gang?${query({ namespace, name })}`, newest, (is) => {
    const table = gangTable(name);
    if (model.gangs[key]) table.show([[key, model.gangs[key]]]);
    const active = is.recoveries.map((each) => model.recoveries[each]).find((each) => each && !each.is_over);
    return [table.element, active && timeline(active), ...sections(is.sections),
      links(`${model.head.node}s`, is.nodes, nodeLink), recoveriesOf(is.recoveries)];
  });
}

export function recovery(namespace, name) {
  const key = `${namespace}/${name}`;
  return detail(`recovery/${name} in ${namespace}`, `api/recovery?${query({ namespace, name })}`,
    () => model.recoveries[key], ({ entry, sections: text, nodes }) => [
      el("p", {}, badge(entry.row.phase), " of ", gangLink(entry.row.namespace, entry.row.gang),
        entry.held_in ? ` in ${entry.held_in}` : "", entry.row.message ? `: ${entry.row.message}` : ""),
      timeline(entry), ...sections(text), links(`${model.head.node}s`, nodes, nodeLink)]);
}

/** The phases so far, each as long as it took; the last one grows while the recovery goes on. */
export function timeline(entry) {
  const laps = entry.timeline.map(([phase, at, message], index) => {
    const next = entry.timeline[index + 1]?.[1];
    return { phase, at, message, took: next ? (Date.parse(next) - Date.parse(at)) / 1000 : null };
  });
  const total = laps.reduce((sum, lap) => sum + (lap.took ?? 0), 0);
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, laps.filter((lap) => lap.took).map((lap) => {
    const piece = el("span", { class: `phase-${lap.phase.toLowerCase()}`, title: `${lap.phase} ${age(lap.took)}` });
    piece.style.flexGrow = String(Math.max(lap.took, total / 100));
    return piece;
  }));
  const items = laps.map((lap) => el("li", {}, el("span", { class: "when" }, clock(lap.at)), " ", badge(lap.phase), " ",
    lap.took !== null ? el("span", { class: "took" }, exact(lap.took))
      : entry.is_over ? "" : el("span", { class: "took" }, ticking(lap.at)),
    lap.message ? el("span", { class: "said" }, ` ${lap.message}`) : null));
  return el("section", { "aria-label": "timeline" }, el("h2", {}, "Timeline"), bar, el("ol", { class: "laps" }, items));
}

function exact(seconds) {
  return seconds < 10 ? `${seconds.toFixed(1)}s` : age(seconds);
}

export function node(name) {
  return detail(`node/${name}`, `api/node?${query({ name })}`, () => model.nodes[name], (is) => {
    const [domain, state, spare, reason] = is.cell;
    const facts = [["state", [badge(state), reason ? ` ${reason}` : ""]], ["failure domain", domain],
      ["spare", [spare, is.claimed && ` ${is.claimed}`]],
      ["in quarantine since", is.quarantined_since && [moment(is.quarantined_since), " (",
        ticking(is.quarantined_since), "), ", is.quarantined_for]],
      ["its agent reported", is.agent_seen && [moment(is.agent_seen), " (", ticking(is.agent_seen, " ago"), ")"]],
      ["its agent reads", is.sources.join(", ")]]
      .filter(([, value]) => value && value.length && value.some?.((each) => each) !== false);
    return [el("dl", {}, facts.flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)])),
      is.repair ? el("section", {}, el("h2", {}, "Once it is repaired"), el("pre", {}, is.repair)) : null,
      el("section", {}, el("h2", {}, "Findings"), is.standing.length ? is.standing.map(finding)
        : empty("Nothing stands against it.")),
      is.cleared.length ? el("section", {}, el("h2", {}, "Findings that ended"), is.cleared.map(finding)) : null,
      links("Gangs on it", is.gangs, (key) => {
        const [namespace, ...rest] = key.split("/");
        return gangLink(namespace, rest.join("/"));
      }),
      recoveriesOf(is.recoveries) ?? links("Recoveries", is.recoveries, (key) => recoveryLink(...key.split("/")))];
  });
}

function finding(each) {
  const evidence = each.evidence ?? [];
  return el("article", { class: "card" }, el("h3", {}, `${each.id} `, badge(each.severity),
    each.quarantines ? " takes the node out of service" : "", each.shadow ? " in shadow" : ""),
  el("p", {}, each.message),
  el("p", { class: "quiet" }, `action ${each.action}, raised ${moment(each.raisedAt)}, last ${moment(each.lastAt)}, `
    + `seen ${each.count ?? 1} times` + (each.clearedAt ? `, ended ${moment(each.clearedAt)} by ${each.clearedBy}` : "")),
  evidence.length ? el("pre", {}, evidence.map((seen) =>
    `${clock(seen.at)}  ${seen.source}${(seen.sequence ?? -1) >= 0 ? ` record ${seen.sequence}` : ""}: ${seen.text}`)
    .join("\n")) : null);
}
