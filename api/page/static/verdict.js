// What happened, what it costs and what to do, in words. The overview and the view of a job both take them from here.

import { count, microseconds, percent, seconds } from "./format.js";

export const RUNGS = {
  reroute: "Reroute in place",
  reroute_after_migration: "Migrate workers, then reroute",
  drop_pipelines: "Drop the pipelines that failed",
  wait_for_repair: "Stop and wait for the repair",
  restart_from_checkpoint: "Restart from a checkpoint",
};

export const CAUSES = {
  registered: "registered",
  event: "reported",
  improved: "better plan found",
  revised: "job replaced",
  recovered: "stored epoch was damaged, made again",
};

/** "stopped", "hurt", "waiting" or "well": how urgently somebody has to look. */
export function severity(job) {
  if (!job.has_plan) return "stopped";
  if (job.num_failed || job.num_degraded) return "hurt";
  return job.num_acknowledged < job.num_live && job.cause !== "registered" ? "waiting" : "well";
}

export const SEVERITIES = {
  stopped: "NO PLAN: training cannot go on",
  hurt: "REROUTED around what failed",
  waiting: "NO FAILURE REPORTED, but some workers have yet to take the plan",
  well: "NO FAILURE REPORTED: nothing is known to be down or slow",
};

/** What is down and slow. */
export function whatFailed(job) {
  if (!job.num_failed && !job.num_degraded) return "Nothing.";
  const parts = [];
  if (job.num_failed) parts.push(`${job.num_failed} of ${count(job.num_workers, "worker")} ${job.num_failed === 1 ? "is" : "are"} down`);
  if (job.num_degraded) parts.push(`${count(job.num_degraded, "node or worker", "nodes or workers")} ${job.num_degraded === 1 ? "is" : "are"} slow`);
  return `${parts.join(", ")}.`;
}

/** What that costs. */
export function whatItCosts(job) {
  if (!job.has_plan) return "Everything: no iteration can run.";
  const kept = job.throughput_kept;
  if (kept === null) return "Not known.";
  if (kept >= 0.9995) return "Nothing: full throughput.";
  const lost = job.lost_s === null ? "" : ` About ${seconds(job.lost_s)} of training are lost until the next failure or repair.`;
  const running = job.num_acknowledged ? "it keeps" : "once workers run the plan, it keeps";
  return `${percent(1 - kept)} of the throughput: ${running} ${percent(kept)}.${lost}`;
}

/** How much better another plan could be. */
export function bestPossible(job) {
  if (!job.has_plan) return "";
  if (job.gap === 0) return "proved: no plan for these failures is faster";
  return job.gap === null ? "no bound is known" : `another plan could be at most ${percent(job.gap)} faster (bound ${microseconds(job.bound_us)})`;
}

/** What somebody has to do. */
export function whatToDo(job) {
  if (!job.has_plan) {
    return capital(job.hint ?? "wait for the next epoch; the service tries again") + ".";
  }
  const steps = [];
  const missing = job.num_live - job.num_acknowledged;
  if (missing === job.num_live) steps.push("See whether the job runs: no worker has acknowledged the plan yet.");
  if (job.chosen === "wait_for_repair") steps.push("Waiting for the repair is cheaper than running on: decide whether to stop the job.");
  else if (job.chosen === "restart_from_checkpoint") steps.push("A restart from a checkpoint is cheaper than running on: decide whether to stop the job.");
  else if (job.num_failed) steps.push("Repair what failed. Until then nothing is better than this plan.");
  else if (job.num_degraded) steps.push("Find out why something is slow. The plan gives it less to do.");
  if (missing > 0 && missing < job.num_live) steps.push(`See why ${count(missing, "worker")} ${missing === 1 ? "has" : "have"} not acknowledged the plan.`);
  return steps.join(" ") || "Nothing.";
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** The same figures from an epoch, for one that is not the current one or would be. */
export function ofEpoch(body, numWorkers, acknowledged = null) {
  const rung = body.ladder.find((found) => found.name === body.chosen);
  const live = numWorkers - body.failed_workers.length;
  return {
    cause: body.cause,
    num_workers: numWorkers,
    num_failed: body.failed_workers.length,
    num_degraded: Object.keys(body.failures.degraded).length,
    has_plan: body.plan !== null,
    problem: body.problem?.message ?? null,
    hint: body.problem?.hint ?? null,
    period_us: body.plan?.period_us ?? null,
    bound_us: body.plan?.bound_us ?? null,
    gap: body.plan?.gap ?? null,
    throughput_kept: body.plan?.throughput_kept ?? null,
    chosen: body.chosen,
    lost_s: rung?.lost_s ?? null,
    num_live: live,
    num_acknowledged: acknowledged ?? live,
  };
}

/** What is down in an epoch, by name. */
export function downOf(body) {
  const { nodes, ranks, workers } = body.failures;
  return [...(nodes ? [nodes] : []), ...ranks.map((rank) => `rank ${rank}`), ...workers.map((worker) => `worker ${worker}`)];
}

/** What is slow in an epoch, by name. */
export function slowOf(body) {
  return Object.entries(body.failures.degraded).map(([target, speed]) => `${target} (${percent(speed)} of its speed)`);
}

/** What an epoch changed against the one before it. */
export function changeOf(body, before) {
  if (!before) return [];
  const had = new Set(before.failed_workers);
  const has = new Set(body.failed_workers);
  const changes = [];
  const down = body.failed_workers.filter((worker) => !had.has(worker));
  const back = before.failed_workers.filter((worker) => !has.has(worker));
  if (down.length) changes.push(`down: ${list(down)}`);
  if (back.length) changes.push(`back: ${list(back)}`);
  for (const [target, speed] of Object.entries(body.failures.degraded)) {
    if (before.failures.degraded[target] !== speed) changes.push(`slow: ${target} at ${percent(speed)}`);
  }
  for (const target of Object.keys(before.failures.degraded)) {
    if (!(target in body.failures.degraded) && !down.length) changes.push(`no longer slow: ${target}`);
  }
  if (body.shards_restored && !before.shards_restored) changes.push("optimizer shards restored");
  if (body.migrations.length) changes.push(`${count(body.migrations.length, "worker")} loaded a state`);
  return changes;
}

const list = (workers) => (workers.length <= 6 ? workers.join(" ") : `${workers.slice(0, 6).join(" ")} and ${workers.length - 6} more`);
