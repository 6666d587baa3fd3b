// Events that are only tried: nothing of a job changes until they are reported in a step of its own.

import { jobPath, postJson } from "./api.js";

const VERBS = { node_failed: "fail", node_degraded: "slow down", node_recovered: "restore" };
const SHORT = { f: "node_failed", s: "node_degraded", r: "node_recovered" };

/** One event: {kind, nodes, workers, speed}. */
export function eventOf(kind, what, targets, speed = null) {
  return { kind, nodes: what === "worker" ? [] : targets, workers: what === "worker" ? targets : [], speed, token: token() };
}

/** An event in words: "fail n02 n03". */
export function words(event) {
  return `${VERBS[event.kind]} ${targetsOf(event)}${event.speed === null ? "" : ` to ${Math.round(event.speed * 100)} %`}`;
}

/** The same as what is said to have happened: "n02 n03: down". */
export function reportOf(event) {
  const state = { node_failed: "down", node_recovered: "back, at full speed", node_degraded: `slow, at ${Math.round((event.speed ?? 1) * 100)} % of full speed` };
  return `${targetsOf(event)}: ${state[event.kind]}`;
}

function targetsOf(event) {
  const targets = [...event.nodes, ...event.workers.map((worker) => `worker ${worker}`)];
  return targets.length <= 4 ? targets.join(" ") : `${targets.slice(0, 4).join(" ")} and ${targets.length - 4} more`;
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
    // The same token again after a lost answer is the same report, not a second one.
    const answer = await postJson(jobPath(jobId, "events"), { ...body(event), expected_epoch: expected }, { "Idempotency-Key": event.token });
    expected = answer.epoch;
    onReported(event, answer);
  }
}

/** Text of an event in a link. */
export function toText(event) {
  const letter = Object.keys(SHORT).find((key) => SHORT[key] === event.kind);
  const targets = event.workers.length ? ["w", ...event.workers] : ["n", ...event.nodes];
  return [letter, event.speed ?? "", ...targets].join("|");
}

/** Event of a link's text; null where it is none. */
export function fromText(text) {
  const [letter, speed, what, ...targets] = text.split("|");
  const kind = SHORT[letter];
  const share = speed === "" ? null : Number(speed);
  const isSound = kind && ["n", "w"].includes(what) && targets.length && (kind === "node_degraded") === (share !== null) && !Number.isNaN(share);
  return isSound ? eventOf(kind, what === "w" ? "worker" : "node", targets, share) : null;
}

function token() {
  return `page-${[...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
