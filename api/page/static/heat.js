// What one more failure would do: of each node, and of all together.

import { fill, h, name } from "./dom.js";
import { count, either, percent, seconds } from "./format.js";
import { whatIsNext } from "./verdict.js";

const LISTED = 5;

/** How much losing the worst of some nodes hurts: 0 to 1, "lost", or null where not known; in words; and in a word. */
export function hurtOf(nodes, heat) {
  const ranks = nodes.map((node) => heat?.node_groups[node]).filter((group) => group !== null && group !== undefined);
  if (!ranks.length) return { heat: null, heatText: "", short: "" };
  const group = heat.groups[Math.min(...ranks)];
  const kept = keptOf(group);
  if (group.outcome === "ready") return { heat: Math.min(1, Math.max(0, 1 - group.throughput_kept)), heatText: `if it fails too: training keeps ${kept}`, short: kept };
  if (group.outcome === "not_ready") return { heat: null, heatText: "if it fails too: training goes on; how fast is not known yet, try it", short: "?" };
  return { heat: "lost", heatText: group.outcome === "stage_lost" ? "if it fails too: training stops" : "if it fails too: optimizer state is lost, training stops", short: "STOPS" };
}

// A better plan than the fault-free one that shares count from may have been found since.
const keptOf = (group) => percent(group.throughput_kept === null ? null : Math.min(1, group.throughput_kept));

function outcomeOf(group) {
  if (group.outcome === "ready") return `keeps ${keptOf(group)}`;
  return group.outcome === "stage_lost" ? "stops training" : "stops training, since optimizer state is lost";
}

/** The nodes of a group: up to three by name, else "n02, n10 or 7 more". */
function exampleOf(heat, cluster, rank) {
  return name(either(cluster.nodes.filter((_, node) => heat.node_groups[node] === rank)));
}

/** What to know of the next failure, for the top of the page. */
export function nextFailure(facts, heat, cluster) {
  const told = { ...facts, certain: heat?.certain ?? facts.certain };
  if (!facts.has_plan || !heat) return h("p", {}, whatIsNext(told));
  const lost = heat.groups.flatMap((group, rank) => (group.outcome === "stage_lost" || group.outcome === "optimizer_shard_lost" ? [rank] : []));
  const parts = [lost.length ? stopper(heat, cluster, lost) : h("p", {}, whatIsNext(told))];
  const unknown = numUnknown(heat);
  if (!lost.length && heat.groups[0]?.outcome === "ready") {
    parts.push(h("p", {}, unknown ? "Worst known: " : "Worst: ", exampleOf(heat, cluster, 0), ` (slot ${heat.groups[0].slots.join(", ")}) ${outcomeOf(heat.groups[0])}.`));
  }
  if (unknown) parts.push(h("p", { class: "note" }, `For ${unknown === 1 ? "1 node" : `${unknown.toLocaleString("en")} nodes`} no plan is ready: a search of ${seconds(heat.search_s)} makes one when it happens. Make plans ready, at the map, fills in the ?.`));
  return parts;
}

/** Whose loss stops training, and why. */
function stopper(heat, cluster, lost) {
  const [first] = lost;
  const nodes = lost.reduce((sum, rank) => sum + heat.groups[rank].num_nodes, 0);
  const why = heat.groups[first].outcome === "stage_lost" ? `nobody else is left in slot ${heat.groups[first].slots.join(", ")}` : "each worker holds the only copy of a part of the optimizer's state";
  return h("p", { class: "problem headline" }, "Training stops if it is ", exampleOf(heat, cluster, first), lost.length > 1 ? `, or another of ${nodes} nodes` : "", `: ${why}.`);
}

/** Nodes for whose loss no plan is there. */
export const numUnknown = (heat) => heat.groups.filter((group) => group.outcome === "not_ready").reduce((sum, group) => sum + group.num_nodes, 0);

/** The same as the colours of the map, in words. */
export function heatList(element, heat, cluster) {
  const known = heat.groups.flatMap((group, rank) => (group.outcome === "not_ready" ? [] : [rank]));
  const unknown = numUnknown(heat);
  const rows = known.slice(0, LISTED).map((rank) => h("li", {}, exampleOf(heat, cluster, rank), `, slot ${heat.groups[rank].slots.join(", ")}: ${outcomeOf(heat.groups[rank])}`));
  return fill(element, h("h3", {}, "If one more node fails, the worst first"), h("ol", {}, rows),
    known.length > LISTED ? h("p", { class: "note" }, `${count(known.length - LISTED, "kind")} of nodes more, all of which hurt less.`) : null,
    unknown ? h("p", {}, `${count(unknown, "node")}: training goes on; how fast is not known, since no plan is ready.`) : null,
    heat.ready > 0 ? h("p", { class: "note" }, `For up to ${heat.ready} more failed ${heat.ready === 1 ? "worker" : "workers"} every plan is ready.`) : null);
}
