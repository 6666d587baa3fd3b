// Begins: shows what the address names, asks for a key where one is wanted, and says when the service is lost.

import { key, whenKeyWanted, whyNoKey } from "./api.js";
import { fill, h, openDialog } from "./dom.js";
import { clock, seconds } from "./format.js";
import { JobView } from "./job.js";
import { Live } from "./live.js";
import { OverviewView } from "./overview.js";
import { showWords } from "./words.js";

const PAGE_VERSION = document.querySelector('meta[name="replan-version"]')?.content ?? null;
const OLD = " What you see is old";
const LOST_STEPS = [
  () => "Open this address on another machine: if it answers there, the network from here is broken.",
  () => ["On the service's machine: ", h("code", { class: "command" }, `curl ${location.protocol}//127.0.0.1${location.port && `:${location.port}`}/readyz`), ". It says what is not ready."],
  () => "If nothing answers, start the service again: docs/operations.md.",
];
const live = new Live();
const at = (id) => document.getElementById(id);
let view = null;
let asking = null;

const STATES = {
  connecting: { chip: "Connecting…" },
  live: { chip: "● Connected" },
  paused: { chip: "Paused" },
  store: { chip: "STORE LOST", banner: `The service answers, but its store does not.${OLD}; it goes on by itself once the store is back.` },
  lost: { chip: "SERVICE LOST", banner: `SERVICE LOST, or the network to it: this page cannot tell which.${OLD}; trying again. Until the service is back a new failure gets no new plan; workers go on with the plans they have.` },
  busy: { chip: "REFUSED FOR A WHILE", banner: `The service refuses this page for a while, since it gets too many requests from here.${OLD}; trying again.` },
  strange: {
    chip: "NOT UNDERSTOOD",
    banner: `The service answers, but not in a way that this page understands: it may be of another version, or something between changes its answers.${OLD}. Load the page anew.`,
  },
  refused: { chip: "KEY WANTED", banner: `The service takes no requests from this page without a key that is good.${OLD}.` },
};

function showConnection() {
  const { chip, banner } = STATES[live.state];
  const isOld = banner !== undefined;
  at("connection").className = `connection ${live.state}`;
  fill(at("connection"), chip);
  at("lost").hidden = !isOld;
  fill(at("lost-text"), banner ?? "");
  at("lost-steps").hidden = live.state !== "lost";
  fill(at("lost-steps"), LOST_STEPS.map((step) => h("li", {}, step())));
  document.body.classList.toggle("stale", isOld);
  showSince();
  showKey();
  showTitle();
}

/** When the service was last heard from; apart from what is said aloud, since it changes every second. */
function showSince() {
  if (at("lost").hidden) return;
  const silent = live.heardAt === null ? null : performance.now() - live.heardAt;
  const said = silent === null ? "It has not been heard from since this page was opened." : `Last answer ${seconds(Math.floor(silent / 1000))} ago, at ${clock(Date.now() - silent)}.`;
  fill(at("lost-since"), live.state === "refused" ? [said, " ", h("button", { type: "button", onclick: () => askForKey(null) }, "Give a key")] : said);
}

function showTitle() {
  const prefix = STATES[live.state].banner === undefined ? "" : `${STATES[live.state].chip} · `;
  document.title = `${prefix}${view?.title ?? ""} · RePlan`;
}

function showVersion() {
  const banner = at("version");
  const differs = PAGE_VERSION !== null && live.version !== null && live.version !== PAGE_VERSION;
  banner.hidden = !differs;
  if (differs) fill(banner, `The service is of version ${live.version}, this page of ${PAGE_VERSION}. `, h("button", { type: "button", onclick: () => location.reload() }, "Load the page anew"));
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const match = /^\/jobs\/([^/]+)$/.exec(path);
  view?.close();
  view = match ? new JobView(live, decode(match[1]), new URLSearchParams(query)) : new OverviewView(live);
  fill(at("main"), view.element);
  window.scrollTo(0, 0);
  view.open();
  showTitle();
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
  const wrong = h("p", { class: "problem", role: "alert" });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    const text = input.value.trim();
    const why = whyNoKey(text);
    fill(wrong, why ?? "");
    if (why !== null) return;
    key.set(text);
    asking.close();
    live.again();
    route();
  } }, h("label", { for: "key" }, "API key"), input, h("button", { type: "submit" }, "Use it"));
  const told = key.get() && reason
    ? `The key that was given is not good: ${reason}.`
    : "A key with the scope read is enough to look and to try; report is needed to report failures, admin to have plans made ready.";
  asking = openDialog("This service asks for an API key", h("p", {}, told), form, wrong, h("p", { class: "note" }, "It is kept by this tab alone, until the tab is closed."));
  asking.addEventListener("close", () => { asking = null; });
}

function showKey() {
  const forget = () => { key.clear(); location.reload(); };
  fill(at("key-state"), key.get() ? h("button", { type: "button", class: "small", onclick: forget }, "Forget the key") : null);
}

whenKeyWanted(askForKey);
live.addEventListener("connection", showConnection);
live.addEventListener("change", showVersion);
window.addEventListener("hashchange", route);
setInterval(() => { showSince(); showTitle(); }, 1000);
at("words").addEventListener("click", showWords);
at("skip").addEventListener("click", (event) => {
  // Not by the address, which names the view.
  event.preventDefault();
  at("main").focus();
});
showConnection();
route();
live.start();

/** What is shown. */
export const page = { live, get view() { return view; } };
