// The top of a job's view: what failed, what it costs, what to do, what one more failure would do.

import { figure, fill, h, name } from "./dom.js";
import { ago, clock, count, microseconds, percent, sentence, some } from "./format.js";
import { nextFailure } from "./heat.js";
import { isOverdue, nextBack, stepList, whatToDo } from "./steps.js";
import { EDGE, bestPossible, downOf, isLastStand, severity, slowOf, stateOf, whatFailed, whatItCosts } from "./verdict.js";
import { WORDS } from "./words.js";

/** Draws it; `heat` is null where it is not known yet, or of another epoch; `onBack` takes the name of a node that is back, null where that cannot be reported. */
export function drawVerdict(element, { facts, body, cluster, heat, now, onBack }) {
  const isEdge = isLastStand({ ...facts, certain: heat?.certain ?? facts.certain });
  element.className = `card verdict ${severity(facts)}${isEdge ? " edge" : ""}`;
  element.dataset.overdue = isOverdue(facts, now);
  fill(element,
    h("p", { class: "state" }, stateOf(facts), isEdge ? [" ", h("span", { class: "edge-note" }, EDGE)] : null,
      h("span", { class: "since" }, ` plan number ${body.epoch}, since ${clock(body.created_at)} (`, h("span", { "data-at": body.created_at }, ago(body.created_at, now)), ")")),
    h("div", { class: "answers" },
      h("div", {}, h("h2", {}, "What failed"), failed(facts, body)),
      h("div", {}, h("h2", {}, "What it costs"), h("p", {}, whatItCosts(facts)), facts.has_plan ? h("p", { class: "note" }, sentence(bestPossible(facts))) : null),
      h("div", {}, h("h2", {}, "What to do"), steps(facts, body, now, onBack)),
      h("div", {}, h("h2", {}, "If one more fails"), nextFailure(facts, heat, cluster))),
    h("dl", { class: "figures" }, figures(facts, body, now)));
}

function failed(facts, body) {
  const slow = slowOf(body);
  const down = facts.down.length <= 3 ? facts.down.join(", ") : some(downOf(body), 8);
  return [
    h("p", {}, whatFailed(facts)),
    down.length ? h("p", {}, h("strong", {}, "Down: "), name(down)) : null,
    slow.length ? h("p", {}, h("strong", {}, "Slow: "), name(some(slow, 6))) : null,
    body.failed_workers.length ? h("p", { class: "note" }, `Workers that are down (pipeline/slot): ${some(body.failed_workers, 8)}`) : null,
    body.dropped.length ? h("p", { class: "note" }, `No longer known to the job: ${some(body.dropped, 4)}`) : null,
    facts.problem ? h("p", { class: "problem" }, sentence(facts.problem)) : null,
  ];
}

function steps(facts, body, now, onBack) {
  const copied = body.migrations.filter((move) => move.copy_from !== null);
  const missing = facts.num_live - facts.num_acknowledged;
  return [
    stepList(whatToDo(facts, now, body.migrations)),
    onBack === null ? null : h("div", { class: "actions" }, nextBack(facts).filter((target) => /^[\w.-]+$/.test(target)).map((node) => h("button", { type: "button", onclick: () => onBack(node) }, `${node} is back…`))),
    facts.has_plan && missing && facts.missing.length ? h("p", { class: "note" }, `Not taken by ${some(facts.missing, 8, missing)}`) : null,
    copied.length
      ? h("p", { class: "note" }, `${count(copied.length, "worker")} first ${copied.length === 1 ? "copies" : "copy"} a state, by themselves: ${some(copied.map((move) => `${move.from} takes ${move.to}`), 4)}.`)
      : null,
  ];
}

function figures(facts, body, now) {
  const missing = facts.num_live - facts.num_acknowledged;
  const plan = facts.has_plan;
  return [
    figure("Throughput kept", plan ? percent(facts.throughput_kept) : "none", plan && missing ? "once the plan is taken" : null, WORDS["throughput kept"]),
    figure("Iteration time (period)", plan ? microseconds(facts.period_us) : "none", null, WORDS["iteration time (period)"]),
    !plan ? null : figure("Plan taken by", `${facts.num_acknowledged} of ${count(facts.num_live, "worker")}`, missing ? (facts.num_acknowledged ? "the others have not acknowledged it" : "nobody has acknowledged it") : null, WORDS.acknowledged),
    "last_event_at" in facts ? figure("Last report", lastReport(facts.last_event_at, now)) : null,
    !plan || body.from_iteration === null ? null : figure("Runs from", `iteration ${body.from_iteration}`),
    figure("Plan number (epoch)", String(body.epoch), body.revision > 1 ? `of the job as replaced ${count(body.revision - 1, "time")}` : null, WORDS.epoch),
  ];
}

/** How long ago something was reported, which the view keeps up to date. */
export function lastReport(at, now) {
  return at ? h("span", { "data-at": at, title: clock(at) }, ago(at, now)) : "none yet";
}

/** What the tab is called. */
export const titleOf = (facts) => ({ stopped: "✕ NO PLAN · ", untaken: "PLAN NOT TAKEN · ", hurt: `${percent(facts.throughput_kept)} · ` })[severity(facts)] ?? "";

