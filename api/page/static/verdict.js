// What happened, what it costs, what to do and what would be next, in words. The overview and the view of a job take them from here.

import { capital, count, microseconds, percent, seconds, some } from "./format.js";

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

/** "stopped", "hurt", "waiting" or "well": how urgently somebody has to look. */
export function severity(job) {
  if (!job.has_plan) return "stopped";
  if (job.num_failed || job.num_degraded) return "hurt";
  return job.num_acknowledged < job.num_live && job.cause !== "registered" ? "waiting" : "well";
}

const SEVERITIES = {
  stopped: "NO PLAN: training cannot go on",
  hurt: "REROUTED around what failed",
  waiting: "NOTHING DOWN, but some workers have yet to take the plan",
  well: "NOTHING DOWN: no failure has been reported, or all are repaired",
};

/** How a job stands, in a line. */
export function stateOf(job) {
  return `${SEVERITIES[severity(job)]}${isLastStand(job) ? ". ⚠ ONE MORE FAILURE MAY STOP TRAINING" : ""}`;
}

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
  if (kept >= 0.9995) return "Nothing: full throughput.";
  const lost = job.lost_s === null ? "" : ` About ${seconds(job.lost_s)} of training are lost until the next failure or repair.`;
  const running = job.num_acknowledged ? "training keeps" : "once workers run the plan, training keeps";
  return `${percent(1 - kept)} of the throughput: ${running} ${percent(kept)}.${lost}`;
}

/** How much better another plan could be. */
export function bestPossible(job) {
  if (!job.has_plan) return "";
  if (job.gap === 0) return "proved: no plan for these failures is faster";
  return job.gap === null ? "no bound is known" : `another plan could be at most ${percent(job.gap)} faster (bound ${microseconds(job.bound_us)})`;
}

/** What somebody has to do, step by step; empty for nothing. `migrations` are those of the epoch, where they are known. */
export function whatToDo(job, migrations = []) {
  if (!job.has_plan) return withoutPlan(job);
  const steps = [];
  const bare = migrations.filter((move) => move.copy_from === null).length;
  const whom = `${count(bare, "worker")} ${bare === 1 ? "has" : "have"}`;
  if (bare) steps.push(`Start training from its last checkpoint, as its training script does it: no live worker holds what ${whom} to load. This service keeps no checkpoints.`);
  const missing = job.num_live - job.num_acknowledged;
  if (missing === job.num_live) steps.push("See whether the job runs: no worker has acknowledged the plan yet.");
  if (job.chosen === "wait_for_repair") steps.push("Decide whether to stop the job: by the costs in its file, waiting for the repair loses less than running on.");
  else if (job.chosen === "restart_from_checkpoint") steps.push("Decide whether to stop the job: by the costs in its file, a restart from a checkpoint loses less than running on.");
  if (job.num_failed) steps.push("Repair what failed and report it: choose it on the map of the job, Restore, Report. Until then workers follow this plan by themselves.");
  else if (job.num_degraded) steps.push("Find out why something is slow. The plan gives it less to do.");
  if (missing > 0 && missing < job.num_live) steps.push(`See why ${count(missing, "worker")} ${missing === 1 ? "has" : "have"} not acknowledged the plan.`);
  return steps;
}

function withoutPlan(job) {
  const back = `Report what is back: choose it on the map of the job, then Restore and Report; or run replan report ${job.id ?? "JOB"} --recovered NODES.`;
  if (job.problem_code === "stage_lost") {
    return ["Repair or replace what failed: each slot that is lost needs at least one worker.", `${back} A plan follows at once.`,
      "Then start training again from its last checkpoint, as its training script does it. What was lost is nowhere else; this service keeps no checkpoints."];
  }
  if (job.problem_code === "optimizer_shard_lost") {
    return ["Restore the lost shards of the optimizer from the last checkpoint onto live workers of the same slots, as the training script does it.",
      "Then report that: on the page of the job, What if…, Optimizer shards restored, Report.", "Or start training again from the checkpoint."];
  }
  if (job.problem_code === "memory_too_small") return [`${capital(job.hint ?? "repair what failed")}.`, `Or repair what failed. ${back}`];
  return ["Wait: the service tries again by itself, after 1, 5, 30 and then every 120 seconds.", "If no plan comes, its log says why."];
}

/** Whether the next failure may stop training; false too where it stands already. */
export const isLastStand = (job) => job.has_plan && job.certain === 0;

/** What one more failure would do, in the words that are known without looking at each node. */
export function whatIsNext(job) {
  if (!job.has_plan) return "Training stands already.";
  if (job.certain === 0) return "Training stops, if it is in the wrong place.";
  if (job.certain === undefined || job.certain === null) return "";
  return job.certain === 1 ? "Training goes on, whichever worker it is. A second one in the wrong place would stop it." : `Training goes on: any ${job.certain} more workers can fail.`;
}

/** The same figures from an epoch, for one that is not the current one or would be. */
export function ofEpoch(body, numWorkers) {
  const rung = body.ladder.find((found) => found.name === body.chosen);
  const live = numWorkers - body.failed_workers.length;
  return {
    id: body.job,
    cause: body.cause,
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
