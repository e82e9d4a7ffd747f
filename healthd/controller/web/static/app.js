// The page: which view the address names, when it is drawn, and what the connection says.

import * as details from "./details.js";
import { el } from "./dom.js";
import * as lists from "./overview.js";
import { credentials, follow, model, retry } from "./stream.js";
import { age, clock, since } from "./words.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let view = null;
let shownHash = null;
let pending = null;
let status = { connected: false, why: "", next: 0 };
let signingIn = false;

const VIEWS = { "": lists.overview, nodes: lists.nodes, gangs: lists.gangs, recoveries: lists.recoveries,
  incidents: lists.incidents };
const DETAILS = { gang: details.gang, recovery: details.recovery, node: details.node };

function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let parts;
  try {
    parts = path.split("/").map(decodeURIComponent);
  } catch {
    parts = ["?"];
  }
  const [first, ...rest] = parts;
  if (Object.hasOwn(VIEWS, first) && !rest.length) return VIEWS[first](new URLSearchParams(search));
  if (Object.hasOwn(DETAILS, first) && rest.length && rest.every(Boolean)) return DETAILS[first](...rest);
  return { title: "Not found", update() {}, element: el("div", {}, el("h1", { tabindex: "-1" }, "No such page"),
    el("p", {}, "The address names nothing that this page has. ", el("a", { href: "#/" }, "To the overview"))) };
}

function navigate() {
  if (!model.head || signingIn) return;
  if (location.hash === "#main") return main.focus();
  const isFirst = shownHash === null;
  shownHash = location.hash;
  view = route();
  document.title = `${view.title} – healthd ${model.head.name}`;
  main.replaceChildren(view.element);
  view.update({ all: true });
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.getAttribute("href") === (location.hash.split("?")[0] || "#/");
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
}

/** Changes that come before the next picture are drawn together. */
function changed(change) {
  say(change);
  signingIn = false;
  if (pending) pending = merged(pending, change);
  else {
    pending = change;
    requestAnimationFrame(draw);
    if (document.hidden) draw();
  }
}

function merged(before, after) {
  if (before.all || after.all) return { all: true };
  return { ...before, ...after, nodes: before.nodes || after.nodes ? { ...before.nodes, ...after.nodes } : undefined };
}

function draw() {
  if (!pending) return;
  const change = pending;
  pending = null;
  document.getElementById("name").textContent = model.head.name;
  document.getElementById("nodes-link").hidden = !model.head.budget;
  if (!view) navigate();
  else view.update(change);
  showConnection();
}

/** What a screen reader says: a recovery in a new phase. */
function say(change) {
  const news = Object.values(change.recoveries ?? {}).filter(Boolean)
    .map(({ row }) => `${row.gang}: ${row.phase}${row.message ? `, ${row.message}` : ""}`);
  if (news.length) document.getElementById("news").textContent = news.slice(0, 3).join(". ");
}

function connected(given) {
  status = given;
  if (!given.connected && given.status === 401) signIn(given.why);
  else showConnection();
}

function showConnection() {
  document.body.classList.toggle("stale", !status.connected && model.at > 0);
  const text = connectionText();
  if (connection.textContent !== text) connection.textContent = text;
  connection.hidden = !text;
}

function connectionText() {
  if (status.connected) return model.head?.trouble ? `May be out of date: ${model.head.trouble}.` : "";
  if (!status.why) return "";
  const asOf = model.at ? ` What you see is as of ${clock(new Date(model.at).toISOString())} UTC.` : "";
  const help = status.status ? "" : " Does healthd run, and kubectl port-forward, if you use it?";
  return `Not connected: ${status.why}.${asOf} Trying again.${help}`;
}

function signIn(why) {
  if (signingIn) return;
  signingIn = true;
  view = null;
  connection.hidden = true;
  const token = el("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = el("form", { class: "signin", onsubmit: (event) => {
    event.preventDefault();
    credentials.set(token.value.trim());
    signingIn = false;
    retry();
  } }, el("label", { for: "token" }, "Token"), token, el("button", {}, "Show the page"));
  main.replaceChildren(el("h1", { tabindex: "-1" }, "Who are you?"), el("p", { role: "alert" }, why), form,
    el("p", { class: "quiet" }, "It stays in this tab, and is sent to this server alone."));
  document.title = "Sign in – healthd";
}

function tick() {
  for (const each of document.querySelectorAll("[data-since]")) {
    const text = age(since(each.dataset.since)) + (each.dataset.after ?? "");
    if (each.textContent !== text) each.textContent = text;
  }
  if (view && !status.connected) showConnection();
}

function themes() {
  const button = document.getElementById("theme");
  const order = ["system", "light", "dark"];
  const show = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = localStorage.getItem("healthd-theme");
  if (!order.includes(theme)) theme = "system";
  show(theme);
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    localStorage.setItem("healthd-theme", theme);
    show(theme);
  });
}

themes();
credentials.get();
addEventListener("hashchange", () => {
  if (/^#key=/.test(location.hash)) {
    credentials.get();
    retry();
  }
  navigate();
});
setInterval(tick, 1000);
follow(changed, connected);
