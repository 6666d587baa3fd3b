// What somebody has to do, step by step; commands have their names filled in.

import { h } from "./dom.js";
import { capital, count, either } from "./format.js";

const PATIENCE_S = 60;
const NAMED = 3;

/** Whether workers had a minute to take the plan, and some have not; `now` in milliseconds. */
export const isOverdue = (job, now) => job.has_plan && job.num_acknowledged < job.num_live && now - Date.parse(job.created_at) >= 1000 * PATIENCE_S;

/** What to bring back first, by slot: slots that are lost, or that the next failure would take. */
export function urgentSlots(job) {
  const wanted = job.has_plan ? 1 : 0;
  return job.weak.filter((slot) => slot.num_live === wanted && slot.down.length);
}

/** What may be back next, to be reported: at most three names. */
export function nextBack(job) {
  const urgent = urgentSlots(job).flatMap((slot) => slot.down);
  return (urgent.length ? urgent : job.down).slice(0, NAMED);
}

/** Steps, each a text or parts of one; empty for nothing. `migrations` are those of the epoch, where they are known. */
export function whatToDo(job, now, migrations = []) {
  if (!job.has_plan) return withoutPlan(job);
  const steps = [];
  const bare = migrations.filter((move) => move.copy_from === null).length;
  const whom = `${count(bare, "worker")} ${bare === 1 ? "has" : "have"}`;
  if (bare) steps.push(`Start training from its last checkpoint, as its training script does it: no live worker holds what ${whom} to load. This service keeps no checkpoints.`);
  if (job.num_acknowledged < job.num_live) steps.push(taking(job, now));
  if (job.chosen === "wait_for_repair") steps.push("Decide whether to stop the job: by the costs in its file, waiting for the repair loses less than running on.");
  else if (job.chosen === "restart_from_checkpoint") steps.push("Decide whether to stop the job: by the costs in its file, a restart from a checkpoint loses less than running on.");
  if (job.num_failed) steps.push(...repair(job));
  else if (job.num_degraded) steps.push("Find out why something is slow. The plan gives it less to do.");
  return steps;
}

/** What to do about workers that have not taken the plan. */
function taking(job, now) {
  const missing = job.num_live - job.num_acknowledged;
  const isNew = job.cause === "registered" && missing === job.num_live;
  if (isNew) return "If the job was started, see whether it runs: no worker has taken the plan yet.";
  if (!isOverdue(job, now)) return `Wait ${PATIENCE_S} s: workers fetch the plan by themselves.`;
  const who = missing === job.num_live ? "no worker has" : `${count(missing, "worker")} ${missing === 1 ? "has" : "have"} not`;
  return [`See whether the job runs, and its workers' logs for why they do not get the plan: ${who} taken it in ${PATIENCE_S} s. `, command(`replan jobs show ${job.id}`), " tells who has it."];
}

function repair(job) {
  const urgent = urgentSlots(job);
  const report = ["Report what is back: ", ...reporting(job)];
  if (!urgent.length) {
    const last = job.certain === 0 ? " Save a checkpoint now, if you can." : "";
    return [[`Repair ${named(job)}.${last} `, ...report]];
  }
  const hangs = urgent.filter((slot) => slot.live.length).map((slot) => `${slot.live[0]} (the last of slot ${slot.slot})`);
  return [
    `Do not touch ${hangs.join(", ")}. Save a checkpoint now, if you can.`,
    [`Bring back ${urgent.map((slot) => either(slot.down)).join(", and ")} first. `, ...report],
  ];
}

const named = (job) => (job.down.length && job.down.length <= NAMED ? either(job.down, "and") : "what failed");

/** The command that reports what is back. */
function reporting(job) {
  const [first, ...others] = nextBack(job);
  return [command(`replan report ${job.id} --recovered ${first ?? "NAME"}`), others.length ? ` (or ${either(others)})` : ""];
}

const command = (text) => h("code", { class: "command" }, text);

function withoutPlan(job) {
  const report = ["Report what is back, and a plan follows at once: ", ...reporting(job)];
  if (job.problem_code === "stage_lost") {
    const slots = urgentSlots(job);
    const back = slots.length
      ? `Bring back ${slots.map((slot) => `${slot.down.length > 1 ? "any one of " : ""}${either(slot.down)} (slot ${slot.slot})`).join(", and ")}.`
      : "Bring back one worker of each slot that is lost.";
    return [back, report,
      "Then start training again from its last checkpoint, as its training script does it. What was lost is nowhere else; this service keeps no checkpoints."];
  }
  if (job.problem_code === "optimizer_shard_lost") {
    return ["Restore the lost shards of the optimizer from the last checkpoint onto live workers of the same slots, as the training script does it.",
      "Then report that: on the page of the job, What if…, Optimizer shards restored, Declare.", "Or start training again from the checkpoint."];
  }
  if (job.problem_code === "memory_too_small") return [`${capital(job.hint ?? "repair what failed")}.`, [`Or repair ${named(job)}. `, ...report]];
  return ["Wait: the service tries again by itself, after 1, 5, 30 and then every 120 seconds.", "If no plan comes, its log says why."];
}

/** Steps as a list, or the one there is. */
export const stepList = (steps) => (steps.length > 1 ? h("ol", {}, steps.map((step) => h("li", {}, step))) : h("p", {}, steps[0] ?? "Nothing."));
