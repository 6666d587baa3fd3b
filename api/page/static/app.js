// Begins: shows what the address names, asks for a key where one is wanted, and says when the service is lost.

import { key, whenKeyWanted } from "./api.js";
import { announce, fill, h, openDialog } from "./dom.js";
import { clock } from "./format.js";
import { JobView } from "./job.js";
import { Live } from "./live.js";
import { OverviewView } from "./overview.js";

const PAGE_VERSION = document.querySelector('meta[name="replan-version"]')?.content ?? null;
const live = new Live();
let view = null;
let place = null;
let asking = null;

const STATES = {
  connecting: "Connecting…",
  live: "Connected",
  store: "The service answers, but its store does not. What you see is old.",
  lost: "SERVICE LOST. What you see is old; trying again. Workers go on with the plans they have.",
  refused: "No key",
};

function showConnection() {
  const chip = document.getElementById("connection");
  chip.className = `connection ${live.state}`;
  fill(chip, live.state === "live" ? "● Connected" : STATES[live.state].split(".")[0]);
  const banner = document.getElementById("lost");
  const isOld = live.state === "lost" || live.state === "store";
  banner.hidden = !isOld;
  if (isOld) {
    const since = live.heardAt === null ? "" : ` Last heard from at ${clock(new Date(Date.now() - (performance.now() - live.heardAt)).toISOString())}.`;
    fill(banner, `${STATES[live.state]}${since}`);
    announce(STATES[live.state]);
  }
  document.body.classList.toggle("stale", isOld);
}

function showVersion() {
  const banner = document.getElementById("version");
  const differs = PAGE_VERSION !== null && live.version !== null && live.version !== PAGE_VERSION;
  banner.hidden = !differs;
  if (differs) fill(banner, `The service is of version ${live.version}, this page of ${PAGE_VERSION}. `, h("button", { type: "button", onclick: () => location.reload() }, "Reload"));
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const match = /^\/jobs\/([^/]+)$/.exec(path);
  const next = location.hash;
  if (next === place) return;
  place = next;
  view?.close();
  view = match ? new JobView(live, decode(match[1]), new URLSearchParams(query)) : new OverviewView(live);
  const main = document.getElementById("main");
  fill(main, view.element);
  window.scrollTo(0, 0);
  view.open();
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function askForKey(reason) {
  if (asking) return;
  const input = h("input", { type: "password", autocomplete: "off", size: 40, placeholder: "rpk_…", id: "key", required: true });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    key.set(input.value.trim());
    location.reload();
  } }, h("label", { for: "key" }, "API key"), input, h("button", { type: "submit" }, "Use it"));
  asking = openDialog("This service asks for an API key", h("p", {}, key.get() ? `The key that was given is not good: ${reason}.` : "A key with the scope read is enough to look and to try; report is needed to report failures."),
    form, h("p", { class: "note" }, "It is kept by this tab alone, until the tab is closed."));
  asking.addEventListener("close", () => { asking = null; });
}

function showKey() {
  const holder = document.getElementById("key-state");
  if (!key.get()) return;
  fill(holder, h("button", { type: "button", class: "small", onclick: () => { key.clear(); location.reload(); } }, "Forget the key"));
}

whenKeyWanted(askForKey);
live.addEventListener("connection", showConnection);
live.addEventListener("change", showVersion);
window.addEventListener("hashchange", route);
showKey();
showConnection();
route();
live.start();

/** What is shown. */
export const page = { live, get view() { return view; } };
