// The cluster as cells: a column a pipeline, a line a slot; more pipelines than fit go on below.

import { between, theme } from "./colours.js";
import { announce, fill, h } from "./dom.js";
import { percent } from "./format.js";

const [LEAST_CELL, MOST_CELL] = [6, 34];
const [SMALL, MOST_RINGS] = [10, 64];
const [LEFT, TOP, BETWEEN] = [34, 18, 12];

/** A canvas with the cells of all workers; fires `choose` with a worker's index. */
export class ClusterMap extends EventTarget {
  constructor() {
    super();
    this.cluster = null;
    this.cells = null;
    this.chosen = null;
    this.canvas = h("canvas", { class: "map", tabindex: 0, role: "application", "aria-label": "cluster map, a column a pipeline, a line a slot. Arrow keys move, Enter chooses." });
    this.scroller = h("div", { class: "map-scroller" }, this.canvas);
    this.tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
    this.element = h("div", { class: "map-box" }, this.scroller, this.tip);
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows a cluster; `cells` tells of each worker: {status, load, heat, tried, moved}. `mode` is "health" or "heat". */
  show(cluster, cells, mode) {
    this.cluster = cluster;
    this.cells = cells;
    this.mode = mode;
    this.draw();
  }

  choose(worker) {
    this.chosen = worker;
    this.draw();
  }

  #layout() {
    const { num_pipelines: pipelines, num_slots: slots } = this.cluster;
    const width = Math.max(120, this.scroller.clientWidth - 18 - LEFT);
    const cell = Math.min(MOST_CELL, Math.max(LEAST_CELL, Math.floor(Math.min(width / pipelines, 26 + 400 / slots))));
    const bands = Math.ceil(pipelines / Math.max(1, Math.min(pipelines, Math.floor(width / cell))));
    const columns = Math.ceil(pipelines / bands);
    const bandHeight = TOP + slots * cell + BETWEEN;
    return { cell, columns, bands, bandHeight, width: LEFT + columns * cell + 4, height: bands * bandHeight };
  }

  /** Upper left corner of a worker's cell. */
  #corner(worker) {
    const { cell, columns, bandHeight } = this.layout;
    const pipeline = Math.floor(worker / this.cluster.num_slots);
    const slot = worker % this.cluster.num_slots;
    return [LEFT + (pipeline % columns) * cell, Math.floor(pipeline / columns) * bandHeight + TOP + slot * cell];
  }

  #workerAt(x, y) {
    const { cell, columns, bandHeight } = this.layout;
    const column = Math.floor((x - LEFT) / cell);
    const band = Math.floor(y / bandHeight);
    const slot = Math.floor((y - band * bandHeight - TOP) / cell);
    const pipeline = band * columns + column;
    const { num_pipelines: pipelines, num_slots: slots } = this.cluster;
    return column >= 0 && column < columns && slot >= 0 && slot < slots && pipeline < pipelines ? pipeline * slots + slot : null;
  }

  draw() {
    if (!this.cluster || !this.scroller.clientWidth) return;
    this.layout = this.#layout();
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const { width, height, cell } = this.layout;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d", { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colours = theme();
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, width, height);
    this.#labels(context, colours);
    const gap = cell >= 10 ? 2 : 1;
    for (const [colour, workers] of this.#byColour(colours)) {
      context.fillStyle = colour;
      for (const worker of workers) {
        const [x, y] = this.#corner(worker);
        context.fillRect(x, y, cell - gap, cell - gap);
      }
    }
    this.#signs(context, colours, cell - gap);
  }

  #byColour(colours) {
    const groups = new Map();
    this.cells.forEach((state, worker) => {
      const colour = this.#colour(state, colours);
      if (!groups.has(colour)) groups.set(colour, []);
      groups.get(colour).push(worker);
    });
    return groups;
  }

  #colour(state, colours) {
    if (state.status === "down") return colours.down;
    if (this.mode === "heat") {
      if (state.heat === null) return colours.unknown;
      return state.heat === "lost" ? colours.heatHigh : between(colours.heatLow, colours.heatHigh, 0.75 * state.heat);
    }
    if (state.status === "slow") return colours.slow;
    return state.load === null ? colours.unknown : between(colours.low, colours.high, state.load);
  }

  /** Crosses, halves and frames: no state is told by colour alone. */
  #signs(context, colours, size) {
    this.cells.forEach((state, worker) => {
      const [x, y] = this.#corner(worker);
      if (state.status === "down") {
        context.strokeStyle = colours.ground;
        context.lineWidth = size >= 12 ? 2.5 : 1.2;
        context.beginPath();
        context.moveTo(x + 1.5, y + 1.5);
        context.lineTo(x + size - 1.5, y + size - 1.5);
        context.moveTo(x + size - 1.5, y + 1.5);
        context.lineTo(x + 1.5, y + size - 1.5);
        context.stroke();
      } else if (state.status === "slow") {
        context.fillStyle = colours.ink;
        context.beginPath();
        context.moveTo(x, y + size);
        context.lineTo(x + size, y + size);
        context.lineTo(x + size, y);
        context.fill();
      } else if (state.moved) {
        context.fillStyle = colours.ink;
        context.fillRect(x + size / 2 - 1.5, y + size / 2 - 1.5, 3, 3);
      }
      if (state.tried) this.#frame(context, colours.tried, x, y, size, [3, 2]);
      if (state.helps) this.#frame(context, colours.tried, x, y, size, []);
    });
    if (size < SMALL) this.#ringFew(context, colours, size);
    if (this.chosen !== null) {
      const [x, y] = this.#corner(this.chosen);
      this.#frame(context, colours.pick, x - 1, y - 1, size + 2, []);
    }
  }

  /** Among thousands of small cells a few that are down or slow would not be seen: they get a ring. */
  #ringFew(context, colours, size) {
    const hurt = this.cells.flatMap((state, worker) => (state.status === "live" ? [] : [worker]));
    if (hurt.length > MOST_RINGS) return;
    for (const worker of hurt) {
      const [x, y] = this.#corner(worker);
      const [middleX, middleY] = [x + size / 2, y + size / 2];
      for (const [colour, width, radius] of [[colours.ground, 6, size + 3], [this.cells[worker].status === "down" ? colours.down : colours.slow, 3, size + 3]]) {
        context.strokeStyle = colour;
        context.lineWidth = width;
        context.beginPath();
        context.arc(middleX, middleY, radius, 0, 2 * Math.PI);
        context.stroke();
      }
    }
  }

  #frame(context, colour, x, y, size, dash) {
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.setLineDash(dash);
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    context.setLineDash([]);
  }

  #labels(context, colours) {
    const { cell, columns, bands, bandHeight } = this.layout;
    const { num_pipelines: pipelines, num_slots: slots } = this.cluster;
    context.fillStyle = colours.soft;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const [every, each] = [Math.ceil(26 / cell), Math.ceil(11 / cell)];
    for (let band = 0; band < bands; band += 1) {
      const y = band * bandHeight;
      context.textAlign = "center";
      for (let column = 0; column < columns && band * columns + column < pipelines; column += every) {
        context.fillText(String(band * columns + column), LEFT + column * cell + cell / 2, y + TOP - 8);
      }
      context.textAlign = "right";
      for (let slot = 0; slot < slots; slot += each) context.fillText(`s${slot}`, LEFT - 6, y + TOP + slot * cell + cell / 2);
    }
  }

  #listen() {
    const at = (event) => (this.cluster ? this.#workerAt(event.offsetX, event.offsetY) : null);
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
      if (worker !== null) this.#pick(worker);
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (!this.cluster) return;
    const { num_slots: slots, num_pipelines: pipelines } = this.cluster;
    const now = this.chosen ?? 0;
    const moves = { ArrowLeft: -slots, ArrowRight: slots, ArrowUp: -1, ArrowDown: 1, Home: -now, End: pipelines * slots - 1 - now };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#pick(now);
    } else if (event.key in moves) {
      event.preventDefault();
      const next = this.chosen === null ? 0 : now + moves[event.key];
      if (next < 0 || next >= pipelines * slots) return;
      this.choose(next);
      announce(this.words(next).join(", "));
    }
  }

  #pick(worker) {
    this.choose(worker);
    announce(this.words(worker).join(", "));
    this.dispatchEvent(new CustomEvent("choose", { detail: worker }));
  }

  nodesOf(worker) {
    return this.cluster.worker_nodes[worker].map((node) => this.cluster.nodes[node]);
  }

  racksOf(worker) {
    return [...new Set(this.cluster.worker_nodes[worker].map((node) => this.cluster.racks[this.cluster.rack_of_node[node]]))];
  }

  /** What is known of a worker, line by line. */
  words(worker) {
    const { num_slots: slots } = this.cluster;
    const state = this.cells[worker];
    const nodes = this.nodesOf(worker);
    const lines = [`Worker ${Math.floor(worker / slots)}/${worker % slots}`,
      `Node ${nodes.slice(0, 3).join(" ")}${nodes.length > 3 ? ` and ${nodes.length - 3} more` : ""}`, `Rack ${this.racksOf(worker).join(" ")}`];
    if (state.status === "down") lines.push("DOWN");
    else if (state.status === "slow") lines.push(`SLOW${state.speed ? `: ${percent(state.speed)} of full speed` : ""}`);
    if (state.status !== "down" && state.load !== null) lines.push(`busy ${percent(state.load)} of the period`);
    if (state.moved) lines.push(`stands at position ${state.moved}`);
    if (state.tried) lines.push(`in the what-if: ${state.tried}`);
    if (state.helps) lines.push("in the what-if: takes over microbatches");
    if (this.mode === "heat" && state.heatText) lines.push(state.heatText);
    return lines;
  }
}
