// What happened to a job, the newest first; and the ladder of answers with what each would cost.

import { fill, h, name } from "./dom.js";
import { clock, microseconds, percent, seconds } from "./format.js";
import { CAUSES, RUNGS, changeOf, downOf, slowOf } from "./verdict.js";

/** Rows of epochs; `link(epoch)` gives the address of one. */
export function historyTable(bodies, shown, link) {
  const rows = [];
  for (let n = bodies.length - 1; n >= 0; n -= 1) {
    const body = bodies[n];
    if (body.damaged) {
      rows.push(h("tr", {}, h("th", { scope: "row" }, body.epoch), h("td", { colspan: 4, class: "problem" }, "damaged in the store")));
      continue;
    }
    const before = bodies[n - 1] && !bodies[n - 1].damaged ? bodies[n - 1] : null;
    const changes = changeOf(body, before);
    const down = [...downOf(body), ...slowOf(body)];
    rows.push(h("tr", { class: body.epoch === shown ? "shown" : null },
      h("th", { scope: "row" }, h("a", { href: link(body.epoch), "aria-current": body.epoch === shown ? "true" : null }, String(body.epoch))),
      h("td", {}, h("time", { datetime: body.created_at, title: body.created_at }, clock(body.created_at))),
      h("td", {}, CAUSES[body.cause] ?? body.cause),
      h("td", {}, changes.length ? name(changes.join("; ")) : down.length ? name(`same failures: ${down.join(" ")}`) : "nothing is down"),
      h("td", { class: "number" }, body.plan ? percent(body.plan.throughput_kept) : h("strong", { class: "problem" }, "no plan"))));
  }
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Epoch", "When", "Why", "What changed", "Throughput"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows)));
}

/** Every answer with its expected cost; the cheapest is marked. */
export function ladderTable(body) {
  const anyCost = body.ladder.some((rung) => rung.lost_s !== null);
  const rows = body.ladder.map((rung) => h("tr", { class: rung.name === body.chosen ? "shown" : rung.available ? null : "off" },
    h("th", { scope: "row" }, RUNGS[rung.name] ?? rung.name, rung.name === body.chosen ? h("span", { class: "badge" }, "cheapest") : null),
    h("td", { class: "number" }, rung.available ? microseconds(rung.period_us) : "–"),
    h("td", { class: "number" }, rung.available ? (rung.one_time_s === null ? "not known" : seconds(rung.one_time_s)) : "–"),
    h("td", { class: "number" }, rung.available ? (rung.lost_s === null ? "not known" : seconds(rung.lost_s)) : "–"),
    h("td", {}, rung.reason ?? "")));
  const note = anyCost ? null : h("p", { class: "note" }, "The job's file does not say how often failures and repairs come (its section recovery), so costs are not known.");
  return [h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Answer", "Period", "Stands still once", "Expected loss", "Why"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows))), note];
}

/** How much more a job can take, and what hurts most. */
export function heatSummary(element, heat, cluster) {
  const lost = heat.groups.filter((group) => group.outcome === "stage_lost" || group.outcome === "optimizer_shard_lost");
  const numLost = lost.reduce((sum, group) => sum + group.num_nodes, 0);
  const [worst] = heat.groups;
  const example = heat.node_groups.indexOf(0);
  const lines = [h("p", {}, h("strong", {}, heat.certain === 0 ? "One more failure in the wrong place stops training. " : `${heat.certain} more ${heat.certain === 1 ? "worker" : "workers"} can fail anywhere without a slot being lost. `),
    heat.ready > 0 ? `For up to ${heat.ready} of them every plan is ready.` : "Not every plan for the next failure is ready; what is missing is made when it happens, in a moment.")];
  if (numLost) lines.push(h("p", { class: "problem" }, `${numLost === 1 ? "1 node is" : `${numLost} nodes are`} the last of a slot or hold the only copy of a shard: losing one stops training.`));
  if (worst && example >= 0) {
    const numUnknown = heat.groups.filter((group) => group.outcome === "not_ready").reduce((sum, group) => sum + group.num_nodes, 0);
    if (numUnknown) lines.push(h("p", { class: "note" }, `For ${numUnknown === 1 ? "1 node" : `${numUnknown.toLocaleString("en")} nodes`} it is not known, since no plan is ready: try one here, or make all ready with `, h("code", {}, "replan precompute"), "."));
    const cost = { ready: `keeps ${percent(worst.throughput_kept)}`, stage_lost: "stops training", optimizer_shard_lost: "loses optimizer state" }[worst.outcome];
    if (worst.outcome !== "not_ready") lines.push(h("p", {}, "Hurts most: ", name(cluster.nodes[example]), worst.num_nodes > 1 ? ` and ${worst.num_nodes - 1} like it` : "", ` (slot ${worst.slots.join(", ")}): ${cost}.`));
  }
  return fill(element, lines);
}
