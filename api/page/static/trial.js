// Events that are only tried: nothing of a job changes until they are reported in a step of its own.

import { getJson, jobPath, postJson } from "./api.js";
import { rackName, some } from "./format.js";

const VERBS = { node_failed: "fail", node_degraded: "slow down", node_recovered: "restore" };
const SHORT = { f: "node_failed", s: "node_degraded", r: "node_recovered", o: "shards_restored" };
const NAMED = 4;

/** One event on nodes, a rack's nodes or workers: `targets` are their names, `rack` the rack's where it is one. */
export function eventOf(kind, what, targets, { speed = null, rack = null } = {}) {
  return { kind, nodes: what === "worker" ? [] : targets, workers: what === "worker" ? targets : [], speed, rack, token: token() };
}

/** One event in words: "fail n02 n03". */
export function words(event) {
  if (event.kind === "shards_restored") return "optimizer shards restored";
  return `${VERBS[event.kind]} ${targetsOf(event)}${event.speed === null ? "" : ` to ${Math.round(event.speed * 100)} %`}`;
}

/** The same as what is said to have happened: "n02 n03: down". */
export function reportOf(event) {
  if (event.kind === "shards_restored") return "the optimizer shards that the failures took are on live workers again";
  const state = { node_failed: "down", node_recovered: "back, at full speed", node_degraded: `slow, at ${Math.round((event.speed ?? 1) * 100)} % of full speed` };
  return `${targetsOf(event)}: ${state[event.kind]}`;
}

/** What is declared, in a few words: "n02 failed". */
export function declared(events) {
  if (events.length !== 1) return `these ${events.length} events`;
  const [event] = events;
  const state = { node_failed: "failed", node_recovered: "back", node_degraded: "slow" };
  return event.kind === "shards_restored" ? "shards restored" : `${event.rack === null ? targetsOf(event) : rackName(event.rack)} ${state[event.kind]}`;
}

function targetsOf(event) {
  const targets = [...event.nodes, ...event.workers.map((worker) => `worker ${worker}`)];
  return `${event.rack === null ? "" : `${rackName(event.rack)}: `}${some(targets, NAMED)}`;
}

function body(event) {
  const form = { kind: event.kind };
  if (event.nodes.length) form.nodes = event.nodes;
  if (event.workers.length) form.workers = event.workers;
  if (event.speed !== null) form.speed = event.speed;
  return form;
}

/** What would be served after these events, on the epoch that was looked at. */
export function workOut(jobId, events, epoch) {
  return postJson(jobPath(jobId, "what-if"), { events: events.map(body), expected_epoch: epoch });
}

/** Reports the events for real, one after the other, each only if the job is still where the one before left it. */
export async function report(jobId, events, epoch, onReported) {
  let expected = epoch;
  for (const event of [...events]) {
    const answer = await reportOne(jobId, event, expected);
    expected = answer.epoch;
    onReported(event, answer);
  }
}

async function reportOne(jobId, event, epoch) {
  // The same token again after a lost answer is the same report, not a second one.
  const send = (expected) => postJson(jobPath(jobId, "events"), { ...body(event), expected_epoch: expected }, { "Idempotency-Key": event.token });
  try {
    return await send(epoch);
  } catch (error) {
    if (error.code !== "epoch_conflict") throw error;
    const later = await getJson(`${jobPath(jobId, "epochs")}?after=${epoch}`);
    // A better plan for the same failures changes nothing of what was looked at.
    if (!later.length || later.some((found) => found.cause !== "improved")) throw error;
    event.token = token();
    return send(later[later.length - 1].epoch);
  }
}

/** Text of an event in a link. */
export function toText(event) {
  const letter = Object.keys(SHORT).find((key) => SHORT[key] === event.kind);
  const targets = event.rack !== null ? ["r", event.rack] : event.workers.length ? ["w", ...event.workers] : ["n", ...event.nodes];
  return [letter, event.speed ?? "", ...targets.map(encodeURIComponent)].join("|");
}

/** Event of a link's text, null where it is none; `nodesOfRack` gives the nodes of a rack. */
export function fromText(text, nodesOfRack) {
  const [letter, speed, what, ...targets] = text.split("|");
  const kind = SHORT[letter];
  const share = speed === "" ? null : Number(speed);
  let names;
  try {
    names = targets.map(decodeURIComponent).filter(Boolean);
  } catch {
    return null;
  }
  if (!kind || (kind === "node_degraded") !== (share !== null) || (share !== null && !(share > 0 && share < 1))) return null;
  if (kind === "shards_restored") return eventOf(kind, "node", []);
  if (what === "r" && names.length === 1) {
    const nodes = nodesOfRack(names[0]);
    return nodes.length ? eventOf(kind, "node", nodes, { speed: share, rack: names[0] }) : null;
  }
  return ["n", "w"].includes(what) && names.length ? eventOf(kind, what === "w" ? "worker" : "node", names, { speed: share }) : null;
}

function token() {
  return `page-${[...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
