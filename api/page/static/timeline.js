// The timeline of the plan in force beside the fault-free one: two charts that zoom and pan together, and one worker's memory.

import { ask, jobPath } from "./api.js";
import { KIND_COLOURS, KIND_NAMES, onTheme } from "./colours.js";
import { announce, fill, h } from "./dom.js";
import { count, duration, percent } from "./format.js";
import { Gantt } from "./gantt.js";
import { drawMemory } from "./memory.js";
import { Timeline } from "./timeline_data.js";
import { listen } from "./timeline_gestures.js";

const LEAST_SPAN_NS = 50;
const MOST_SPAN = 1.05; // of the longer plan
const [LEAST_ROW, MOST_ROW, USUAL_ROW] = [2, 40, 18];
const MANY_WORKERS = 64;

export async function loadTimeline(jobId, epoch, faultFree, signal) {
  const path = `${jobPath(jobId, "epochs", epoch, "timeline")}${faultFree ? "?fault_free=true" : ""}`;
  return new Timeline(await (await ask(path, { signal })).arrayBuffer());
}

/** What is drawn in both charts, how far in, and which worker is chosen; `changed` fires whenever any of it moves.
 * `nodeOf(worker, isFaultFree)` names the machine that stands at a place of the plan. */
export class TimelinePanel extends EventTarget {
  #ended = new AbortController();

  constructor(nodeOf = () => "") {
    super();
    this.view = { from: 0, to: 1, top: 0, rowHeight: USUAL_ROW, order: [], worker: null };
    this.charts = ["This plan", "With everybody live"].map((title, n) => this.#chart(title, (worker) => nodeOf(worker, n === 1)));
    this.memory = h("canvas", { class: "memory", role: "img", "aria-label": "memory of the chosen worker" });
    this.memoryText = h("p", { class: "note" });
    this.memoryBox = h("div", { class: "memory-box", hidden: true }, h("h3", {}, "Memory"), this.memoryText, this.memory);
    this.details = h("p", { class: "details" });
    this.tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
    this.touched = h("input", { type: "checkbox", onchange: () => this.#reorder() });
    this.element = h("div", { class: "timeline" }, this.#toolbar(), this.#legend(),
      this.charts.map((chart) => chart.box), this.details, this.memoryBox, this.tip);
    this.resized = new ResizeObserver(() => this.#moved(false));
    this.resized.observe(this.charts[0].gantt.canvas);
    onTheme(() => this.schedule(), this.#ended.signal);
  }

  close() {
    this.resized.disconnect();
    this.#ended.abort();
    cancelAnimationFrame(this.frame);
  }

  /** Shows other plans; either may be null. The zoom stays where it was if `keepView`. */
  show(current, faultFree, keepView = false) {
    this.charts[0].gantt.show(current);
    this.charts[1].gantt.show(faultFree);
    // Both start their bars in one line.
    for (const { gantt } of this.charts) gantt.longest = Math.max(...this.charts.map((chart) => chart.gantt.longest));
    this.charts.forEach((chart) => this.#caption(chart));
    this.leave();
    const one = current ?? faultFree;
    if (!one) return;
    const isNew = this.view.order.length !== one.numWorkers;
    if (isNew) this.touched.checked = one.numWorkers > MANY_WORKERS;
    const wasFitted = this.view.from === 0 && this.view.to === this.span;
    this.span = Math.max(1, ...this.charts.map(({ gantt }) => gantt.timeline?.head.span_ns ?? 0));
    if (!keepView || isNew || wasFitted) Object.assign(this.view, { from: 0, to: this.span });
    if (!keepView || isNew) {
      this.view.top = 0;
      this.view.rowHeight = one.numWorkers <= 12 ? 26 : USUAL_ROW;
    }
    this.#reorder(false);
    const rows = Math.min(one.numWorkers, 16);
    for (const chart of this.charts) chart.gantt.canvas.style.height = `${Math.max(90, rows * this.view.rowHeight + 22)}px`;
    this.#clamp();
    this.draw();
  }

  /** Puts the zoom where a link says, as far as the plan goes. */
  restore({ from, to, top, row }) {
    if (Number.isFinite(from) && Number.isFinite(to) && to - from >= LEAST_SPAN_NS) Object.assign(this.view, { from, to });
    if (Number.isFinite(top)) this.view.top = top;
    if (Number.isFinite(row)) this.view.rowHeight = Math.min(MOST_ROW, Math.max(LEAST_ROW, row));
    this.#clamp();
    this.schedule();
  }

  /** Chooses a worker by its index. */
  choose(worker, reveal = true) {
    this.view.worker = worker;
    if (reveal && worker !== null) {
      const row = this.view.order.indexOf(worker);
      const shown = this.charts[0].gantt.plotHeight / this.view.rowHeight;
      if (row < this.view.top || row > this.view.top + shown - 1) this.view.top = Math.max(0, row - Math.floor(shown / 2));
    }
    this.#clamp();
    this.#describe(worker, null);
    this.schedule();
    this.dispatchEvent(new Event("changed"));
  }

  /** Draws in the next frame, once however often it is asked for. */
  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    for (const { gantt } of this.charts) gantt.draw(this.view);
    this.#drawMemory();
  }

  /** Zooms the time by a factor around a place of the chart, as a share of its width. */
  zoom(factor, around = 0.5) {
    const { view } = this;
    const span = Math.min(this.span * MOST_SPAN, Math.max(LEAST_SPAN_NS, (view.to - view.from) * factor));
    const pivot = view.from + around * (view.to - view.from);
    view.from = pivot - around * span;
    view.to = view.from + span;
    this.#moved();
  }

  pan(share, rows = 0) {
    const shift = share * (this.view.to - this.view.from);
    this.view.from += shift;
    this.view.to += shift;
    this.view.top += rows;
    this.#moved();
  }

  fit() {
    Object.assign(this.view, { from: 0, to: this.span, top: 0 });
    this.#moved();
  }

  rows(factor) {
    this.view.rowHeight = Math.min(MOST_ROW, Math.max(LEAST_ROW, this.view.rowHeight * factor));
    this.#moved();
  }

  /** Chooses the worker so many rows below. */
  step(by) {
    const at = this.view.order.indexOf(this.view.worker);
    this.choose(this.view.order[Math.min(this.view.order.length - 1, Math.max(0, at + by))]);
  }

  click(chart, x, y) {
    const { timeline } = chart.gantt;
    const { worker, ns } = chart.gantt.at(this.view, x, y);
    if (worker === null || !timeline) return;
    this.choose(worker, false);
    this.#describe(worker, ns === null ? null : timeline.rowAt(worker, ns), chart);
  }

  hover(chart, event) {
    const { timeline } = chart.gantt;
    if (!timeline) return;
    const { worker, ns } = chart.gantt.at(this.view, event.offsetX, event.offsetY);
    this.tip.hidden = worker === null;
    if (worker === null) return;
    fill(this.tip, this.#words(chart, worker, ns === null ? null : timeline.rowAt(worker, ns), ns));
    const box = this.element.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - 260))}px`;
    this.tip.style.top = `${event.clientY - box.top + 14}px`;
  }

  leave() {
    this.tip.hidden = true;
  }

  span = 1;

  #moved(isNews = true) {
    this.#clamp();
    this.schedule();
    if (isNews) this.dispatchEvent(new Event("changed"));
  }

  #clamp() {
    const { view } = this;
    const span = Math.min(view.to - view.from, this.span * MOST_SPAN);
    const slack = span * 0.05;
    view.from = Math.min(Math.max(view.from, -slack), Math.max(-slack, this.span - span + slack));
    view.to = view.from + span;
    const shown = this.charts[0].gantt.plotHeight / view.rowHeight;
    view.top = Math.max(0, Math.min(view.top, view.order.length - Math.floor(shown)));
  }

  #reorder(redraw = true) {
    const one = this.charts[0].gantt.timeline ?? this.charts[1].gantt.timeline;
    if (!one) return;
    this.view.order = one.order(this.touched.checked);
    if (redraw) {
      this.view.top = 0;
      this.schedule();
    }
  }

  #chart(title, nodeOf) {
    const canvas = h("canvas", { class: "gantt", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${title}: bars by worker. Arrow keys move, plus and minus zoom, 0 shows all, Page Up and Page Down choose a worker.` });
    const caption = h("h3", {}, title);
    const note = h("p", { class: "note" });
    const chart = { title, caption, note, gantt: new Gantt(canvas, nodeOf), box: h("figure", {}, h("figcaption", {}, caption, note), canvas) };
    listen(this, chart);
    return chart;
  }

  /** Says that what is drawn is not what is being tried. */
  mark(isTrying) {
    this.isTrying = isTrying;
    this.charts.forEach((chart) => this.#caption(chart));
  }

  #caption(chart) {
    const { title, caption, note, gantt, box } = chart;
    box.hidden = !gantt.timeline;
    if (!gantt.timeline) return;
    const { head } = gantt.timeline;
    const share = head.fault_free_ns && head.period_ns !== head.fault_free_ns ? `, ${percent(head.fault_free_ns / head.period_ns)} of the fault-free throughput` : "";
    fill(caption, `${title}${this.isTrying && chart === this.charts[0] ? " (live, not the what-if)" : ""}: one iteration every ${duration(head.period_ns)}${share}`);
    fill(note, head.span_ns > head.period_ns ? `One iteration is drawn, ${duration(head.span_ns)} from its first bar to its last. The next one starts ${duration(head.period_ns)} after it (dashed line), while this one still ends.` : "");
  }

  #toolbar() {
    const button = (text, label, action) => h("button", { type: "button", title: label, "aria-label": label, onclick: action }, text);
    return h("div", { class: "toolbar", role: "toolbar", "aria-label": "timeline" },
      button("+", "zoom in", () => this.zoom(0.6)), button("−", "zoom out", () => this.zoom(1 / 0.6)),
      button("◀", "earlier", () => this.pan(-0.25)), button("▶", "later", () => this.pan(0.25)),
      button("▲", "workers above", () => this.pan(0, -8)), button("▼", "workers below", () => this.pan(0, 8)),
      button("Rows +", "higher rows", () => this.rows(1.4)), button("Rows −", "lower rows", () => this.rows(1 / 1.4)),
      button("Fit", "show the whole iteration", () => this.fit()),
      h("label", {}, this.touched, " failed workers and their helpers first"));
  }

  #legend() {
    return h("ul", { class: "legend" },
      KIND_NAMES.map((text, n) => h("li", {}, h("span", { class: "swatch", style: { background: KIND_COLOURS[n] } }), text)),
      h("li", {}, h("span", { class: "swatch rerouted" }), "↷ marked foot: rerouted, another pipeline's work"),
      h("li", {}, h("span", { class: "swatch sync" }), "sync: gradients added up, optimizer step"),
      h("li", {}, h("span", { class: "swatch idle" }), "bubble: the worker waits"),
      h("li", {}, h("span", { class: "swatch down" }), "✕ down"));
  }

  #words({ gantt }, worker, row, ns) {
    const { timeline } = gantt;
    const node = gantt.nodeOf(worker);
    const who = `Worker ${timeline.nameOf(worker)}${node ? ` on ${node}` : ""}`;
    if (timeline.dead.has(worker)) return `${who}: down`;
    const load = `${who}, busy ${percent(timeline.loads[worker])} of the time`;
    if (row === null) return ns === null ? load : `${load}; waits at ${duration(Math.round(ns))}`;
    const moved = timeline.rerouted[row] ? `, rerouted from pipeline ${timeline.home[row]}` : "";
    return `${who}: ${timeline.label(row)} (${KIND_NAMES[timeline.kind[row]].slice(2)}), microbatch ${timeline.microbatch[row]} of pipeline ${timeline.home[row]}${moved}, ${duration(timeline.start_ns[row])} to ${duration(timeline.end_ns[row])}`;
  }

  #describe(worker, row, chart = this.charts.find(({ gantt }) => gantt.timeline)) {
    if (worker === null || !chart || worker >= chart.gantt.timeline.numWorkers) {
      fill(this.details);
      return;
    }
    const text = this.#words(chart, worker, row, null);
    fill(this.details, text);
    announce(text);
  }

  #drawMemory() {
    const gantt = this.charts.find((chart) => chart.gantt.timeline)?.gantt;
    const { worker } = this.view;
    this.memoryBox.hidden = !gantt || worker === null || worker >= gantt.timeline.numWorkers;
    if (this.memoryBox.hidden) return;
    fill(this.memoryText, `Worker ${gantt.timeline.nameOf(worker)}: ${drawMemory(this.memory, gantt.timeline, worker, this.view, gantt.gutter)}`);
  }

  /** What a timeline holds, in words. */
  summaryOf(timeline) {
    return `${count(timeline.numOperations, "operation")} on ${count(timeline.numWorkers - timeline.dead.size, "live worker")}`;
  }
}
