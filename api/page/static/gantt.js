// One plan drawn as bars by worker: pixels first, then names, what is down, and the axis.

import { drawBars } from "./bars.js";
import { fit, rgb, theme } from "./colours.js";
import { duration } from "./format.js";
import { KINDS } from "./timeline_data.js";

const [NARROW, LEAST_GUTTER, MOST_GUTTER] = [600, 92, 190];
const [PLACE_PX, LETTER_PX] = [62, 6.5];
const AXIS = 22;
const LABEL_FONT = "11px system-ui, sans-serif";

/** A canvas that shows some workers of a timeline over some time; `view` is shared by charts that move together.
 * `nodeOf(worker)` names the machine that stands at a place of the plan. */
export class Gantt {
  constructor(canvas, nodeOf) {
    this.canvas = canvas;
    this.nodeOf = nodeOf;
    this.timeline = null;
    this.longest = 0;
  }

  /** Takes what to draw. */
  show(timeline) {
    this.timeline = timeline;
    this.longest = 0;
    for (let worker = 0; worker < (timeline?.numWorkers ?? 0); worker += 1) this.longest = Math.max(this.longest, this.nodeOf(worker).length);
  }

  /** Room for names, left of the bars. */
  get gutter() {
    return this.canvas.clientWidth < NARROW ? LEAST_GUTTER : Math.min(MOST_GUTTER, Math.max(LEAST_GUTTER, PLACE_PX + LETTER_PX * this.longest));
  }

  /** Lines the canvas up with its place on the screen. */
  fit() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    const height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.ratio = ratio;
  }

  get plotWidth() {
    return Math.max(1, this.canvas.clientWidth - this.gutter);
  }

  get plotHeight() {
    return Math.max(1, this.canvas.clientHeight - AXIS);
  }

  /** Worker and time at a place on the canvas, in CSS pixels. */
  at(view, x, y) {
    const row = Math.floor(view.top + y / view.rowHeight);
    const worker = y < this.plotHeight ? (view.order[row] ?? null) : null;
    const ns = view.from + ((x - this.gutter) / this.plotWidth) * (view.to - view.from);
    return { worker, ns: x < this.gutter ? null : ns };
  }

  draw(view) {
    if (!this.timeline) return;
    this.fit();
    const context = this.canvas.getContext("2d", { alpha: false });
    const colours = theme();
    const ratio = this.ratio;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const first = Math.floor(view.top);
    const shown = Math.ceil(this.plotHeight / view.rowHeight) + 1;
    const workers = view.order.slice(first, first + shown);
    const width = Math.round(this.plotWidth * ratio);
    const height = Math.round(this.plotHeight * ratio);
    const image = this.#image(context, width, height);
    const top = (first - view.top) * view.rowHeight * ratio;
    drawBars(image, this.timeline, { workers, top, height: view.rowHeight * ratio, from: view.from, to: view.to }, {
      ground: rgb(colours.ground), idle: rgb(colours.idle), sync: rgb(colours.sync), ink: rgb(colours.ink),
    });
    context.putImageData(image, Math.round(this.gutter * ratio), 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#decorate(context, view, colours, workers, first);
    this.#axis(context, view, colours);
  }

  #image(context, width, height) {
    if (!this.buffer || this.buffer.width !== width || this.buffer.height !== height) {
      this.buffer = context.createImageData(width, height);
    }
    return this.buffer;
  }

  #decorate(context, view, colours, workers, first) {
    const scale = this.plotWidth / (view.to - view.from);
    context.font = LABEL_FONT;
    context.textBaseline = "middle";
    const step = Math.max(1, Math.ceil(12 / view.rowHeight));
    workers.forEach((worker, n) => {
      const y = (first + n - view.top) * view.rowHeight;
      const middle = y + view.rowHeight / 2;
      if (middle > this.plotHeight || middle < 0) return;
      const isDown = this.timeline.dead.has(worker);
      if (isDown) this.#down(context, colours, y, view.rowHeight);
      if (worker === view.worker) {
        context.strokeStyle = colours.pick;
        context.lineWidth = 2;
        context.strokeRect(1, y + 0.5, this.canvas.clientWidth - 2, view.rowHeight - 1);
      }
      if ((first + n) % step === 0 || worker === view.worker || isDown) {
        this.#name(context, colours, worker, middle, isDown);
      }
      if (!isDown && view.rowHeight >= 12) this.#labels(context, view, worker, y, scale);
    });
  }

  /** A worker's place in the plan, and the end of the name of the machine that stands there. */
  #name(context, colours, worker, middle, isDown) {
    const place = `${isDown ? "✕ " : this.timeline.slow.has(worker) ? "◐ " : ""}${this.timeline.nameOf(worker)}`;
    context.textAlign = "left";
    context.fillStyle = isDown ? colours.down : colours.ink;
    context.fillText(place, 5, middle);
    const used = 5 + context.measureText(place).width + 7;
    context.textAlign = "right";
    context.fillStyle = isDown ? colours.down : colours.soft;
    context.fillText(fit(context, this.nodeOf(worker), this.gutter - 6 - used), this.gutter - 6, middle);
  }

  #down(context, colours, y, height) {
    const { gutter } = this;
    const width = this.canvas.clientWidth - gutter;
    context.save();
    context.beginPath();
    context.rect(gutter, y, width, height - 1);
    context.clip();
    context.strokeStyle = colours.down;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = gutter - height; x < gutter + width; x += 9) {
      context.moveTo(x, y + height);
      context.lineTo(x + height, y);
    }
    context.stroke();
    if (height >= 11) {
      context.fillStyle = colours.ground;
      context.fillRect(gutter + 6, y, 44, height);
      context.fillStyle = colours.down;
      context.textAlign = "left";
      context.fillText("down", gutter + 12, y + height / 2);
    }
    context.restore();
  }

  #labels(context, view, worker, y, scale) {
    const { gutter } = this;
    const { start_ns: start, end_ns: end } = this.timeline;
    const last = this.timeline.offsets[worker + 1];
    context.textAlign = "center";
    context.fillStyle = "#000000";
    const middle = y + view.rowHeight / 2;
    for (let row = this.timeline.firstBehind(worker, view.from); row < last && start[row] < view.to; row += 1) {
      const wide = (end[row] - start[row]) * scale;
      if (wide < 11) continue;
      const center = gutter + ((start[row] + end[row]) / 2 - view.from) * scale;
      if (center < gutter + 6 || center > this.canvas.clientWidth - 6) continue;
      const letter = KINDS[this.timeline.kind[row]];
      const full = `${this.timeline.rerouted[row] ? "↷" : ""}${letter}${this.timeline.home[row]}.${this.timeline.microbatch[row]}`;
      context.fillText(wide >= full.length * 6.5 ? full : wide >= 22 && this.timeline.rerouted[row] ? `↷${letter}` : letter, center, middle);
    }
    const slot = this.timeline.head.slots[worker % this.timeline.head.num_slots];
    if (slot.sync_ns * scale >= 34) {
      const center = gutter + (slot.sync_start_ns + slot.sync_ns / 2 - view.from) * scale;
      if (center > gutter) context.fillText("sync", center, middle);
    }
  }

  #axis(context, view, colours) {
    const y = this.plotHeight;
    const { gutter } = this;
    const x = (ns) => gutter + ((ns - view.from) / (view.to - view.from)) * this.plotWidth;
    context.fillStyle = colours.ground;
    context.fillRect(0, y, this.canvas.clientWidth, AXIS);
    context.strokeStyle = colours.line;
    context.fillStyle = colours.soft;
    context.lineWidth = 1;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const step = stepOf(view, this.plotWidth);
    const next = this.#next(context, colours, x);
    context.beginPath();
    for (let ns = Math.ceil(view.from / step) * step; ns <= view.to; ns += step) {
      const at = x(ns);
      context.moveTo(at, y);
      context.lineTo(at, y + 4);
      const isFree = at > gutter + 10 && at < this.canvas.clientWidth - 24 && (next === null || at < next[0] - 24 || at > next[1] + 24);
      if (isFree) context.fillText(ns === 0 ? "0" : duration(ns), at, y + 13);
    }
    context.moveTo(gutter, y + 0.5);
    context.lineTo(this.canvas.clientWidth, y + 0.5);
    context.stroke();
  }

  /** Marks where the next iteration starts, one period behind this one; returns what its words take of the axis. */
  #next(context, colours, x) {
    const { period_ns: period } = this.timeline.head;
    const at = x(period);
    if (at < this.gutter || at > this.canvas.clientWidth) return null;
    context.save();
    context.strokeStyle = colours.ink;
    context.setLineDash([5, 4]);
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(at, 0);
    context.lineTo(at, this.plotHeight + 6);
    context.stroke();
    context.restore();
    const text = `next one starts: ${duration(period)}`;
    const half = context.measureText(text).width / 2;
    const center = Math.min(at, this.canvas.clientWidth - half - 2);
    context.fillText(text, center, this.plotHeight + 13);
    return [center - half, center + half];
  }
}

/** Time between two marks of the axis. */
function stepOf(view, width) {
  const rough = (view.to - view.from) / Math.max(2, Math.floor(width / 110));
  const size = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * size).find((value) => value >= rough);
}
