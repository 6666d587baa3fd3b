// Draws workers' operations into pixels: every pixel gets the mean colour of what runs in its time, so that a million operations
// look right at any zoom and cost no more than one pass over those that are seen.

import { KIND_COLOURS, rgb } from "./colours.js";

const KINDS = KIND_COLOURS.map(rgb);
const LEAST_GAP_PX = 4;

/** Draws some rows of a chart.
 *
 * @param {ImageData} image where to; device pixels.
 * @param {Timeline} timeline what.
 * @param {{workers: number[], top: number, height: number, from: number, to: number}} view
 *   workers to draw from top to bottom, where the first begins and how high each is in device pixels, and the time.
 * @param {{ground: number[], idle: number[], sync: number[], ink: number[]}} colours
 */
export function drawBars(image, timeline, view, colours) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(pack(colours.ground));
  const scale = width / (view.to - view.from);
  const line = new Float32Array(width * 3);
  const marks = new Float32Array(width);
  const body = new Uint32Array(width);
  const strip = new Uint32Array(width);
  const gap = view.height >= 6 ? 1 : 0;
  const marked = view.height >= 9 ? Math.max(2, Math.round(view.height / 6)) : 0;
  const { start_ns: start, end_ns: end, kind, rerouted } = timeline;
  view.workers.forEach((worker, n) => {
    const first = Math.round(view.top + n * view.height);
    const last = Math.min(height, Math.round(view.top + (n + 1) * view.height) - gap);
    if (last <= 0 || first >= height || timeline.dead.has(worker)) return;
    for (let x = 0; x < width; x += 1) line.set(colours.idle, 3 * x);
    marks.fill(0);
    const slot = timeline.head.slots[worker % timeline.head.num_slots];
    if (slot.sync_ns) span((slot.sync_start_ns - view.from) * scale, slot.sync_ns * scale, colours.sync);
    const stop = timeline.offsets[worker + 1];
    for (let row = timeline.firstBehind(worker, view.from); row < stop && start[row] < view.to; row += 1) {
      const left = (start[row] - view.from) * scale;
      const wide = (end[row] - start[row]) * scale;
      // A hair of background keeps neighbours apart where there is room.
      const shown = wide >= LEAST_GAP_PX ? wide - 1 : wide;
      span(left, shown, KINDS[kind[row]]);
      if (rerouted[row]) mark(left, shown);
    }
    for (let x = 0; x < width; x += 1) {
      body[x] = 0xff000000 | (line[3 * x + 2] << 16) | (line[3 * x + 1] << 8) | line[3 * x];
    }
    const from = Math.max(0, first);
    for (let y = from; y < last; y += 1) pixels.set(body, y * width);
    if (marked) {
      for (let x = 0; x < width; x += 1) {
        const share = Math.min(1, marks[x]);
        strip[x] = mix(body[x], colours.ink, share);
      }
      for (let y = Math.max(from, last - marked); y < last; y += 1) pixels.set(strip, y * width);
    }
  });

  /** Lays a colour over part of the line; pixels at its ends get their share of it. */
  function span(left, wide, colour) {
    const right = left + wide;
    if (right <= 0 || left >= width) return;
    for (let x = Math.max(0, Math.floor(left)), most = Math.min(width - 1, Math.ceil(right) - 1); x <= most; x += 1) {
      const share = Math.min(right, x + 1) - Math.max(left, x);
      const at = 3 * x;
      if (share >= 1) {
        line[at] = colour[0];
        line[at + 1] = colour[1];
        line[at + 2] = colour[2];
      } else {
        line[at] += (colour[0] - colours.idle[0]) * share;
        line[at + 1] += (colour[1] - colours.idle[1]) * share;
        line[at + 2] += (colour[2] - colours.idle[2]) * share;
      }
    }
  }

  function mark(left, wide) {
    const right = Math.min(width, left + wide);
    for (let x = Math.max(0, Math.floor(left)); x < right; x += 1) marks[x] += Math.min(right, x + 1) - Math.max(left, x);
  }
}

const pack = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;

function mix(pixel, [r, g, b], share) {
  const blend = (from, to) => Math.round(from + (to - from) * share);
  return pack([blend(pixel & 255, r), blend((pixel >> 8) & 255, g), blend((pixel >> 16) & 255, b)]);
}
