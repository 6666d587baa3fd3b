// What happened to a job, the newest first; and the ladder of answers with what each would cost.

import { h, name, table } from "./dom.js";
import { clock, microseconds, percent, seconds } from "./format.js";
import { CAUSES, RUNGS, changeOf, downOf, slowOf } from "./verdict.js";

/** Rows of epochs; `link(epoch)` gives the address of one. */
export function historyTable(bodies, shown, link) {
  const rows = bodies.map((body, n) => (body.damaged ? damagedRow(body) : epochRow(body, bodies[n - 1], shown, link)));
  return table("epochs, the newest first", ["Epoch", "When", "Why", "What changed", "Throughput"], rows.reverse());
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

/** Every answer with its expected cost; the one to take is marked, and the one that runs. */
export function ladderTable(body) {
  const isKnown = body.ladder.find((rung) => rung.name === body.chosen)?.lost_s !== null;
  const running = body.plan === null ? null : body.chosen === "reroute_after_migration" ? "reroute_after_migration" : "reroute";
  const rows = body.ladder.map((rung) => ({
    className: rung.name === body.chosen ? "shown" : rung.available ? null : "off",
    cells: [
      [RUNGS[rung.name] ?? rung.name, badge(rung.name === body.chosen, body.plan === null ? "what is left" : isKnown ? "costs least" : "shortest iteration"), badge(rung.name === running, "in force")],
      ...(rung.available ? [microseconds(rung.period_us), seconds(rung.one_time_s), seconds(rung.lost_s)] : ["–", "–", "–"]).map((text) => h("span", { class: "number" }, text)),
      rung.reason ?? "",
    ],
  }));
  const note = body.ladder.some((rung) => rung.lost_s !== null)
    ? "Expected loss: training lost until the next failure or repair."
    : "The job's file does not say how often failures and repairs come (its section recovery), so what each answer loses is not known.";
  return [table("answers", ["Answer", "Iteration time", "Stands still once", "Expected loss", "Why"], rows), h("p", { class: "note" }, note)];
}

const badge = (isWanted, text) => (isWanted ? [" ", h("span", { class: "badge" }, text)] : null);
