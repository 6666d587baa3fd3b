// What the map shows of each worker, its legend, and who is hurt in words.

import { fill, h, name } from "./dom.js";
import { rackName, some } from "./format.js";
import { hurtOf } from "./heat.js";

const LISTED = 12;

/** State of each worker's cell. `moves` is who stands elsewhere,
 * `plan` the timeline in force or null, `answer` a what-if's or null, `heat` null where not known. */
export function cellsOf({ body, moves, cluster, plan, heat, answer }) {
  const { num_slots: slots, worker_nodes: nodesOf } = cluster;
  const fits = plan !== null && plan.numWorkers === nodesOf.length && body.plan !== null;
  const down = new Set(body.failed_workers);
  const would = answer ? new Set(answer.would_be.failed_workers) : null;
  const helps = new Set(answer ? answer.reroutes.map((entry) => entry.runs_on) : []);
  return nodesOf.map((nodes, worker) => {
    const label = labelOf(worker, slots);
    const position = moves.get(worker) ?? worker;
    const isDown = down.has(label);
    const speed = fits ? (plan.slow.get(position) ?? null) : null;
    return {
      status: isDown ? "down" : speed === null ? "live" : "slow",
      speed: speed === null ? null : speed / 1e6,
      load: fits && !isDown ? plan.loads[position] : null,
      moved: position === worker ? null : labelOf(position, slots),
      tried: would === null || would.has(label) === isDown ? null : isDown ? "back" : "down",
      helps: helps.has(labelOf(position, slots)) && !isDown,
      ...hurtOf(nodes, heat),
    };
  });
}

export const labelOf = (worker, slots) => `${Math.floor(worker / slots)}/${worker % slots}`;

/** Position where each worker that is not at home stands, by index. */
export function movesOf(body, slots) {
  const index = (text) => { const [k, s] = text.split("/").map(Number); return k * slots + s; };
  return new Map(body.moved.map((entry) => [index(entry.worker), index(entry.position)]));
}

export function drawLegend(element, { cells, mode, body, answer }) {
  const swatch = (kind, text) => h("li", {}, h("span", { class: `swatch ${kind}` }), text);
  const number = (status) => cells.filter((cell) => cell.status === status).length;
  const down = swatch("down", `✕ down (${number("down")})`);
  const entries = mode === "heat"
    ? [down, swatch("heat-lost", "striped, STOPS: losing it stops training"), swatch("heat-high", "losing it costs half or more"), swatch("heat-low", "losing it costs nothing"), swatch("unknown", "?: goes on, how fast is not known until tried")]
    : [down, swatch("slow", `◢ slow (${number("slow")})`), swatch("low", "waits"), swatch("high", "busy all the time"), swatch("unknown", "load not known"),
      body.moved.length ? swatch("moved", `▪ stands elsewhere (${body.moved.length})`) : null];
  fill(element, entries, h("li", {}, "A column is a pipeline, a line (s0, s1, …) a slot, a cell a worker."),
    answer ? [swatch("tried", "dashed: changes in the what-if"), swatch("helps", "framed: takes over in the what-if")] : null);
}

/** Who is down or slow, with node and rack, each to be chosen. */
export function drawHurt(element, map) {
  const hurt = map.cells.flatMap((cell, worker) => (cell.status === "live" ? [] : [worker]));
  element.hidden = !hurt.length;
  fill(element, hurt.slice(0, LISTED).map((worker) => h("li", {},
    h("button", { type: "button", class: `small ${map.cells[worker].status}`, onclick: () => map.pick(worker) }, `${map.cells[worker].status === "down" ? "✕" : "◢"} ${map.nameOf(worker)}`),
    " ", name(`${some(map.nodesOf(worker), 2)}, ${some(map.racksOf(worker).map(rackName), 2)}`))),
  hurt.length > LISTED ? h("li", {}, `and ${hurt.length - LISTED} more`) : null);
}
