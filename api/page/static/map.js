// The cluster as cells that can be chosen, by pointer, by keys or by name.

import { onTheme, theme } from "./colours.js";
import { announce, fill, h } from "./dom.js";
import { percent, some } from "./format.js";
import { MapLayout, drawMap } from "./map_draw.js";

/** A canvas with the cells of all workers; fires `choose` with a worker's index. */
export class ClusterMap extends EventTarget {
  #ended = new AbortController();

  constructor() {
    super();
    this.cluster = null;
    this.cells = null;
    this.chosen = null;
    this.canvas = h("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "map", "aria-label": "cluster map, a column a pipeline, a line a slot. Arrow keys move, Enter chooses." });
    this.scroller = h("div", { class: "map-scroller" }, this.canvas);
    this.tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
    this.element = h("div", { class: "map-box" }, this.scroller, this.tip);
    this.#listen();
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.scroller);
    onTheme(() => this.draw(), this.#ended.signal);
  }

  close() {
    this.resized.disconnect();
    this.#ended.abort();
  }

  /** Shows a cluster; `cells` tells of each worker: {status, load, heat, tried, moved, ...}. `mode` is "health" or "heat". */
  show(cluster, cells, mode) {
    if (this.cluster !== cluster) this.take(cluster);
    this.cells = cells;
    this.mode = mode;
    this.tip.hidden = true;
    this.draw();
  }

  /** Takes who runs where; what all machines' names end in is left out where there is little room. */
  take(cluster) {
    this.cluster = cluster;
    const dot = cluster.nodes[0].indexOf(".");
    const domain = dot < 0 ? "" : cluster.nodes[0].slice(dot);
    this.numShared = domain && cluster.nodes.every((node) => node.endsWith(domain) && node.length > domain.length) ? domain.length : 0;
  }

  choose(worker) {
    this.chosen = worker;
    this.draw();
  }

  draw() {
    if (!this.cluster || !this.scroller.clientWidth) return;
    this.layout = new MapLayout(this.cluster, this.scroller.clientWidth);
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const { width, height } = this.layout;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d", { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { layout, cells, mode, chosen } = this;
    drawMap(context, { layout, cells, mode, chosen, colours: theme(), nameOf: (worker) => this.shortName(worker) });
  }

  #listen() {
    const at = (event) => (this.cluster && this.layout ? this.layout.workerAt(event.offsetX, event.offsetY) : null);
    this.canvas.addEventListener("pointermove", (event) => {
      const worker = at(event);
      this.tip.hidden = worker === null;
      if (worker === null) return;
      fill(this.tip, this.words(worker).map((line) => h("div", { dir: "auto" }, line)));
      const box = this.element.getBoundingClientRect();
      this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - 230))}px`;
      this.tip.style.top = `${event.clientY - box.top + 16}px`;
    });
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const worker = at(event);
      if (worker !== null) this.pick(worker);
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (!this.cluster || event.ctrlKey || event.metaKey || event.altKey) return;
    const { num_slots: slots, num_pipelines: pipelines } = this.cluster;
    const now = this.chosen ?? 0;
    const moves = { ArrowLeft: -slots, ArrowRight: slots, ArrowUp: -1, ArrowDown: 1, Home: -now, End: pipelines * slots - 1 - now };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(now);
    } else if (event.key in moves) {
      event.preventDefault();
      const next = this.chosen === null ? 0 : now + moves[event.key];
      if (next < 0 || next >= pipelines * slots) return;
      this.choose(next);
      this.#reveal(next);
      announce(this.words(next).join(", "));
    }
  }

  /** Chooses a worker as a click on it does. */
  pick(worker) {
    this.choose(worker);
    this.#reveal(worker);
    announce(this.words(worker).join(", "));
    this.dispatchEvent(new CustomEvent("choose", { detail: worker }));
  }

  #reveal(worker) {
    if (!this.layout) return;
    const [x, y] = this.layout.corner(worker);
    const { scroller } = this;
    const [right, bottom] = [x + this.layout.cellWidth, y + this.layout.cellHeight];
    if (y < scroller.scrollTop || bottom > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = y - scroller.clientHeight / 2;
    if (x < scroller.scrollLeft || right > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = x - scroller.clientWidth / 2;
  }

  /** Worker that a text names: `1/2`, a node, a rack, or the first node whose name has it in it; null for none. */
  find(text) {
    const { num_slots: slots, num_pipelines: pipelines, nodes, racks, rack_of_node: rackOf, worker_nodes: held } = this.cluster;
    const place = /^(\d+)\/(\d+)$/.exec(text);
    if (place) {
      const [pipeline, slot] = [Number(place[1]), Number(place[2])];
      return pipeline < pipelines && slot < slots ? pipeline * slots + slot : null;
    }
    const on = (matches) => {
      const worker = held.findIndex((indices) => indices.some(matches));
      return worker < 0 ? null : worker;
    };
    const rack = racks.indexOf(text);
    return on((node) => nodes[node] === text) ?? (rack < 0 ? null : on((node) => rackOf[node] === rack)) ?? (text ? on((node) => nodes[node].includes(text)) : null);
  }

  nodesOf(worker) {
    return this.cluster.worker_nodes[worker].map((node) => this.cluster.nodes[node]);
  }

  racksOf(worker) {
    return [...new Set(this.cluster.worker_nodes[worker].map((node) => this.cluster.racks[this.cluster.rack_of_node[node]]))];
  }

  nameOf(worker) {
    return `${Math.floor(worker / this.cluster.num_slots)}/${worker % this.cluster.num_slots}`;
  }

  /** Its first node, without a domain that all have, and how many more there are. */
  shortName(worker) {
    const held = this.cluster.worker_nodes[worker];
    const node = this.cluster.nodes[held[0]];
    return `${node.slice(0, node.length - this.numShared)}${held.length > 1 ? ` +${held.length - 1}` : ""}`;
  }

  /** What is known of a worker, line by line. */
  words(worker) {
    const state = this.cells[worker];
    const lines = [`Worker ${this.nameOf(worker)}`, `Node ${some(this.nodesOf(worker), 3)}`, `Rack ${some(this.racksOf(worker), 3)}`];
    if (state.status === "down") lines.push("DOWN");
    else if (state.status === "slow") lines.push(`SLOW${state.speed ? `: ${percent(state.speed)} of full speed` : ""}`);
    if (state.status !== "down" && state.load !== null) lines.push(`busy ${percent(state.load)} of the time`);
    if (state.moved) lines.push(`stands at position ${state.moved}`);
    if (state.tried) lines.push(`in the what-if: ${state.tried}`);
    if (state.helps) lines.push("in the what-if: takes over microbatches");
    if (this.mode === "heat" && state.heatText) lines.push(state.heatText);
    return lines;
  }
}
