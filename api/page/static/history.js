// What happened to a job, the newest first; and the ladder of answers with what each would cost.

import { h, name, table } from "./dom.js";
import { clock, microseconds, percent, seconds } from "./format.js";
import { CAUSES, RUNGS, changeOf, downOf, slowOf } from "./verdict.js";

/** Rows of epochs; `link(epoch)` gives the address of one. */
export function historyTable(bodies, shown, link) {
  const rows = bodies.map((body, n) => (body.damaged ? damagedRow(body) : epochRow(body, bodies[n - 1], shown, link)));
  return table("epochs, the newest first", ["Plan (epoch)", "When", "Why", "What changed", "Throughput"], rows.reverse());
}

function damagedRow(body) {
  return { cells: [String(body.epoch), "", "", h("span", { class: "problem" }, "damaged in the store"), ""] };
}

function epochRow(body, before, shown, link) {
  const isShown = body.epoch === shown;
  const changes = changeOf(body, before && !before.damaged ? before : null);
  const down = [...downOf(body), ...slowOf(body)];
  return {
    className: isShown ? "shown" : null,
    cells: [
      h("a", { href: link(body.epoch), "aria-current": isShown ? "true" : null }, String(body.epoch)),
      h("time", { datetime: body.created_at, title: body.created_at }, clock(body.created_at)),
      CAUSES[body.cause] ?? body.cause,
      changes.length ? name(changes.join("; ")) : down.length ? name(`same failures: ${down.join(" ")}`) : "nothing is down",
      body.plan ? h("span", { class: "number" }, percent(body.plan.throughput_kept)) : h("strong", { class: "problem" }, "no plan"),
    ],
  };
}

/** Every answer of which something is known, with its expected cost; the one to take is marked, and the one that runs.
 * What is not known or not possible is told below, in a line. */
export function ladderTable(body) {
  const areCosted = body.ladder.some((rung) => rung.lost_s !== null);
  const running = body.plan === null ? null : body.chosen === "reroute_after_migration" ? "reroute_after_migration" : "reroute";
  const best = body.plan === null ? "what is left" : body.ladder.find((rung) => rung.name === body.chosen)?.lost_s !== null ? "costs least" : "shortest iteration";
  const isTold = (rung) => rung.name === body.chosen || rung.name === running || (rung.available && rung.one_time_s !== null);
  const told = body.ladder.filter(isTold);
  const rows = told.map((rung) => ({
    className: rung.name === body.chosen ? "shown" : null,
    cells: [
      [titleOf(rung), badge(rung.name === body.chosen, best), badge(rung.name === running, "this plan")],
      ...[microseconds(rung.period_us), seconds(rung.one_time_s), ...(areCosted ? [seconds(rung.lost_s)] : [])].map((text) => h("span", { class: "number" }, text)),
    ],
  }));
  const columns = ["Answer", "Iteration time", "Stands still once", ...(areCosted ? ["Expected loss"] : [])];
  const others = (isPossible, text) => {
    const rungs = body.ladder.filter((rung) => rung.available === isPossible && (isPossible ? rung.reason !== null : !isTold(rung)));
    return rungs.length ? h("p", { class: "note" }, `${text}: ${rungs.map((rung) => `${titleOf(rung)} (${rung.reason})`).join("; ")}.`) : null;
  };
  const note = areCosted
    ? "Expected loss: training lost until the next failure or repair."
    : "What each answer loses is not known, since the job's file does not say how often failures and repairs come (its section recovery).";
  return [table("answers", columns, rows), others(true, "Not fully known"), others(false, "Not possible"), h("p", { class: "note" }, note)];
}

const titleOf = (rung) => RUNGS[rung.name] ?? rung.name;
const badge = (isWanted, text) => (isWanted ? [" ", h("span", { class: "badge" }, text)] : null);
