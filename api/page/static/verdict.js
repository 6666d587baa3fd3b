// What happened, what it costs and what would be next, in words. The overview and the view of a job take them from here.

import { count, either, percent, seconds, some } from "./format.js";

export const RUNGS = {
  reroute: "Reroute in place",
  reroute_after_migration: "Migrate workers, then reroute",
  drop_pipelines: "Drop the pipelines that failed",
  wait_for_repair: "Stop and wait for the repair",
  restart_from_checkpoint: "Restart from a checkpoint",
};

export const CAUSES = {
  registered: "job registered",
  event: "failure or repair reported",
  improved: "better plan found",
  revised: "job replaced",
  recovered: "stored epoch was damaged, made again",
};

/** "stopped", "untaken", "hurt", "waiting" or "well": how urgently somebody has to look. */
export function severity(job) {
  if (!job.has_plan) return "stopped";
  const isTaken = job.num_acknowledged >= job.num_live;
  if (job.num_failed || job.num_degraded) return isTaken ? "hurt" : "untaken";
  return isTaken ? "well" : "waiting";
}

const SEVERITIES = {
  stopped: () => "NO PLAN: training cannot go on",
  untaken: (job) => `PLAN READY, ${job.num_acknowledged ? "taken so far" : "not yet taken"}: ${job.num_acknowledged} of ${count(job.num_live, "worker")}`,
  hurt: () => "REROUTED around what failed",
  waiting: (job) => `NOTHING DOWN, but ${job.num_acknowledged ? `only ${job.num_acknowledged} of ${count(job.num_live, "worker")} have` : "no worker has"} taken the plan yet`,
  well: () => "NOTHING DOWN: no failure has been reported, or all are repaired",
};

/** How a job stands, in a line. */
export const stateOf = (job) => SEVERITIES[severity(job)](job);

/** What is added to that line where the next failure may be the last. */
export const EDGE = "⚠ ONE MORE FAILURE MAY STOP TRAINING";

/** What is down and slow. */
export function whatFailed(job) {
  if (!job.num_failed && !job.num_degraded) return "Nothing that was reported.";
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
  const isTaken = job.num_acknowledged >= job.num_live;
  if (kept >= 0.9995) return isTaken ? "Nothing: full throughput." : "Nothing, once all workers have taken the plan.";
  if (!isTaken && job.cause === "improved") return `Not known while workers change over to this better plan. Once all have taken it, training keeps ${percent(kept)}.`;
  if (!isTaken) return `Not known until all workers have taken the plan. Then training keeps ${percent(kept)}.`;
  const lost = job.lost_s === null ? "" : ` About ${seconds(job.lost_s)} of training are lost until the next failure or repair.`;
  return `${percent(1 - kept)} of the throughput: training keeps ${percent(kept)}.${lost}`;
}

/** How much better another plan could be. */
export function bestPossible(job) {
  if (!job.has_plan) return "";
  if (job.gap === 0) return "proved: no plan for these failures is faster";
  return job.gap === null ? "no bound is known" : `another plan could be at most ${percent(job.gap)} faster`;
}

/** Whether the next failure may stop training; false too where it stands already. */
export const isLastStand = (job) => job.has_plan && job.certain === 0;

/** What one more failure would do, in the words that are known without looking at each node. */
export function whatIsNext(job) {
  if (!job.has_plan) return "Training is stopped already.";
  const { certain, weak } = job;
  if (certain === undefined || certain === null) return "";
  if (certain === 0) return weak[0]?.num_live === 1 ? lastOf(weak) : "Training stops, if it is in the wrong place.";
  const goesOn = `Any ${certain === 1 ? "one more worker" : `${certain} more workers`}: training goes on.`;
  if (certain > 1) return goesOn;
  const [only] = weak;
  const which = weak.length === 1 && only.live.length === 2 ? `if they are ${only.live.join(" and ")}` : "both of the wrong slot";
  return `${goesOn} Two more, ${which}: it stops.`;
}

const lastOf = (weak) => `Training stops if it is ${either(weak.flatMap((slot) => slot.live))}: nobody else is left in slot ${either(weak.map((slot) => slot.slot))}.`;

/** The same figures from an epoch, for one that is not the current one or would be. */
export function ofEpoch(body, numWorkers) {
  const rung = body.ladder.find((found) => found.name === body.chosen);
  const live = numWorkers - body.failed_workers.length;
  return {
    id: body.job,
    cause: body.cause,
    created_at: body.created_at,
    num_workers: numWorkers,
    num_failed: body.failed_workers.length,
    num_degraded: Object.keys(body.failures.degraded).length,
    has_plan: body.plan !== null,
    problem_code: body.problem?.code ?? null,
    problem: body.problem?.message ?? null,
    hint: body.problem?.hint ?? null,
    period_us: body.plan?.period_us ?? null,
    bound_us: body.plan?.bound_us ?? null,
    gap: body.plan?.gap ?? null,
    throughput_kept: body.plan?.throughput_kept ?? null,
    chosen: body.chosen,
    lost_s: rung?.lost_s ?? null,
    certain: null,
    down: downOf(body),
    weak: [],
    num_live: live,
    num_acknowledged: live,
    missing: [],
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
  if (down.length) changes.push(`down: ${some(down)}`);
  if (back.length) changes.push(`back: ${some(back)}`);
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
