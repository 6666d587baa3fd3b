// The timeline of the plan in force beside the fault-free one: two charts that zoom and pan together, and one worker's memory.

import { ask, jobPath } from "./api.js";
import { KIND_COLOURS, KIND_NAMES } from "./colours.js";
import { announce, fill, h } from "./dom.js";
import { count, duration, percent } from "./format.js";
import { GUTTER, Gantt } from "./gantt.js";
import { drawMemory } from "./memory.js";
import { Timeline } from "./timeline_data.js";

const LEAST_SPAN_NS = 50;
const [LEAST_ROW, MOST_ROW, USUAL_ROW] = [2, 40, 18];
const MANY_WORKERS = 64;

export async function loadTimeline(jobId, epoch, faultFree) {
  const path = `${jobPath(jobId, "epochs", epoch, "timeline")}${faultFree ? "?fault_free=true" : ""}`;
  return new Timeline(await (await ask(path)).arrayBuffer());
}

/** What is drawn in both charts, how far in, and which worker is chosen; `changed` fires whenever any of it moves. */
export class TimelinePanel extends EventTarget {
  constructor() {
    super();
    this.view = { from: 0, to: 1, top: 0, rowHeight: USUAL_ROW, order: [], worker: null };
    this.charts = ["Plan in force", "With everybody live"].map((title) => this.#chart(title));
    this.memory = h("canvas", { class: "memory", role: "img", "aria-label": "memory of the chosen worker" });
    this.memoryText = h("p", { class: "note" });
    this.memoryBox = h("div", { class: "memory-box", hidden: true }, h("h3", {}, "Memory"), this.memoryText, this.memory);
    this.details = h("p", { class: "details", "aria-live": "polite" });
    this.tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
    this.touched = h("input", { type: "checkbox", onchange: () => this.#reorder() });
    this.element = h("div", { class: "timeline" }, this.#toolbar(), this.#legend(),
      this.charts.map((chart) => chart.box), this.details, this.memoryBox, this.tip);
    new ResizeObserver(() => this.schedule()).observe(this.charts[0].gantt.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.schedule());
  }

  /** Shows other plans; either may be null. The zoom stays where it was if `keepView`. */
  show(current, faultFree, keepView = false) {
    this.charts[0].gantt.timeline = current;
    this.charts[1].gantt.timeline = faultFree;
    this.charts.forEach((chart) => this.#caption(chart));
    const one = current ?? faultFree;
    if (!one) return;
    const isNew = this.view.order.length !== one.numWorkers;
    if (isNew) this.touched.checked = one.numWorkers > MANY_WORKERS;
    if (!keepView || isNew) {
      Object.assign(this.view, { from: 0, to: this.#span(), top: 0 });
      this.view.rowHeight = one.numWorkers <= 12 ? 26 : USUAL_ROW;
    }
    this.#reorder(false);
    const rows = Math.min(one.numWorkers, 16);
    for (const chart of this.charts) chart.gantt.canvas.style.height = `${Math.max(90, rows * this.view.rowHeight + 22)}px`;
    this.draw();
  }

  /** Puts the zoom where a link says. */
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
    const span = Math.min(this.#span() * 1.05, Math.max(LEAST_SPAN_NS, (view.to - view.from) * factor));
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

  #span() {
    return Math.max(1, ...this.charts.map(({ gantt }) => gantt.timeline?.head.span_ns ?? 0));
  }

  #moved() {
    this.#clamp();
    this.schedule();
    this.dispatchEvent(new Event("changed"));
  }

  #clamp() {
    const { view } = this;
    const span = view.to - view.from;
    const slack = span * 0.05;
    const from = Math.min(Math.max(view.from, -slack), Math.max(-slack, this.#span() - span + slack));
    view.from = from;
    view.to = from + span;
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

  #chart(title) {
    const canvas = h("canvas", { class: "gantt", tabindex: 0, role: "img", "aria-label": `${title}: bars by worker. Arrow keys move, plus and minus zoom, Page Up and Page Down choose a worker.` });
    const caption = h("h3", {}, title);
    const chart = { title, caption, gantt: new Gantt(canvas), box: h("figure", {}, h("figcaption", {}, caption), canvas) };
    this.#listen(chart);
    return chart;
  }

  #caption({ title, caption, gantt, box }) {
    box.hidden = !gantt.timeline;
    if (!gantt.timeline) return;
    const { head } = gantt.timeline;
    const longer = head.fault_free_ns && head.period_ns !== head.fault_free_ns ? `, ${percent(head.fault_free_ns / head.period_ns)} of the fault-free throughput` : "";
    fill(caption, `${title}: one iteration every ${duration(head.period_ns)}${longer}`);
  }

  #listen(chart) {
    const { canvas } = chart.gantt;
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("wheel", (event) => {
      // Without a key or the focus the wheel scrolls the document, as everywhere.
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const share = (event.offsetX - GUTTER) / chart.gantt.plotWidth;
      if (event.shiftKey) this.pan(0, Math.sign(event.deltaY || event.deltaX) * 2);
      else this.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(60, Math.abs(event.deltaY)) / 220), Math.min(1, Math.max(0, share)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
      canvas.setPointerCapture(event.pointerId);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) {
        this.#hover(chart, event);
        return;
      }
      const now = [event.offsetX, event.offsetY];
      if (pointers.size === 1) {
        moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
        if (moved > 4) this.pan((before[0] - now[0]) / chart.gantt.plotWidth, event.pointerType === "mouse" ? (before[1] - now[1]) / this.view.rowHeight : 0);
      } else if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const [was, is] = [Math.abs(before[0] - other[0]), Math.abs(now[0] - other[0])];
        moved += 5;
        if (was > 8 && is > 8) this.zoom(was / is, Math.min(1, Math.max(0, ((now[0] + other[0]) / 2 - GUTTER) / chart.gantt.plotWidth)));
      }
      pointers.set(event.pointerId, now);
    });
    const end = (event) => {
      const isClick = pointers.delete(event.pointerId) && moved <= 4 && event.type === "pointerup";
      if (isClick) {
        const { worker, ns } = chart.gantt.at(this.view, event.offsetX, event.offsetY);
        if (worker !== null) {
          this.choose(worker, false);
          this.#describe(worker, ns === null ? null : chart.gantt.timeline.rowAt(worker, ns), chart.gantt.timeline);
        }
      }
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.5, Math.max(0, (event.offsetX - GUTTER) / chart.gantt.plotWidth)));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const actions = {
      ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1),
      ArrowUp: () => this.pan(0, -1), ArrowDown: () => this.pan(0, 1),
      "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), 0: () => this.fit(),
      PageUp: () => this.#step(-1), PageDown: () => this.#step(1),
    };
    if (!(event.key in actions) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  #step(by) {
    const at = this.view.order.indexOf(this.view.worker);
    this.choose(this.view.order[Math.min(this.view.order.length - 1, Math.max(0, at + by))]);
  }

  fit() {
    Object.assign(this.view, { from: 0, to: this.#span(), top: 0 });
    this.#moved();
  }

  rows(factor) {
    this.view.rowHeight = Math.min(MOST_ROW, Math.max(LEAST_ROW, this.view.rowHeight * factor));
    this.#moved();
  }

  #toolbar() {
    const button = (text, label, action) => h("button", { type: "button", title: label, "aria-label": label, onclick: action }, text);
    return h("div", { class: "toolbar", role: "toolbar", "aria-label": "timeline" },
      button("+", "zoom in", () => this.zoom(0.6)), button("−", "zoom out", () => this.zoom(1 / 0.6)),
      button("◀", "earlier", () => this.pan(-0.25)), button("▶", "later", () => this.pan(0.25)),
      button("▲", "workers above", () => this.pan(0, -8)), button("▼", "workers below", () => this.pan(0, 8)),
      button("Rows +", "higher rows", () => this.rows(1.4)), button("Rows −", "lower rows", () => this.rows(1 / 1.4)),
      button("Fit", "show the whole iteration", () => this.fit()),
      h("label", {}, this.touched, " workers that failures touch first"));
  }

  #legend() {
    return h("ul", { class: "legend" },
      KIND_NAMES.map((text, n) => h("li", {}, h("span", { class: "swatch", style: { background: KIND_COLOURS[n] } }), text)),
      h("li", {}, h("span", { class: "swatch rerouted" }), "↷ marked foot: rerouted from another pipeline"),
      h("li", {}, h("span", { class: "swatch sync" }), "sync: all-reduce and optimizer"),
      h("li", {}, h("span", { class: "swatch idle" }), "bubble: idle"),
      h("li", {}, h("span", { class: "swatch down" }), "✕ down"));
  }

  #hover(chart, event) {
    const { timeline } = chart.gantt;
    if (!timeline) return;
    const { worker, ns } = chart.gantt.at(this.view, event.offsetX, event.offsetY);
    this.tip.hidden = worker === null;
    if (worker === null) return;
    fill(this.tip, this.#words(timeline, worker, ns === null ? null : timeline.rowAt(worker, ns), ns));
    const box = this.element.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 260)}px`;
    this.tip.style.top = `${event.clientY - box.top + 14}px`;
  }

  #words(timeline, worker, row, ns) {
    const who = `worker ${timeline.nameOf(worker)}`;
    if (timeline.dead.has(worker)) return `${who}: down`;
    const load = `${who}, busy ${percent(timeline.loads[worker])} of the period`;
    if (row === null) return ns === null ? load : `${load}; idle at ${duration(Math.round(ns))}`;
    const moved = timeline.rerouted[row] ? `, rerouted from pipeline ${timeline.home[row]}` : "";
    return `${who}: ${timeline.label(row)} (${KIND_NAMES[timeline.kind[row]].slice(2)}), microbatch ${timeline.microbatch[row]} of pipeline ${timeline.home[row]}${moved}, ${duration(timeline.start_ns[row])} to ${duration(timeline.end_ns[row])}`;
  }

  #describe(worker, row, timeline = this.charts[0].gantt.timeline ?? this.charts[1].gantt.timeline) {
    if (worker === null || !timeline) {
      fill(this.details);
      return;
    }
    const text = this.#words(timeline, worker, row, null);
    fill(this.details, text);
    announce(text);
  }

  #drawMemory() {
    const timeline = this.charts[0].gantt.timeline ?? this.charts[1].gantt.timeline;
    const { worker } = this.view;
    this.memoryBox.hidden = !timeline || worker === null || worker >= timeline.numWorkers;
    if (this.memoryBox.hidden) return;
    fill(this.memoryText, `Worker ${timeline.nameOf(worker)}: ${drawMemory(this.memory, timeline, worker, this.view)}`);
  }

  /** What a timeline holds, in words. */
  summaryOf(timeline) {
    return `${count(timeline.numOperations, "operation")} on ${count(timeline.numWorkers - timeline.dead.size, "live worker")}`;
  }
}
