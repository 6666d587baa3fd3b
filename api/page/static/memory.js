// The activation memory that one worker holds over an iteration.

import { theme } from "./colours.js";
import { bytes } from "./format.js";

/** Draws the curve of a worker over the chart's time; says in words what it shows. */
export function drawMemory(canvas, timeline, worker, view, gutter) {
  canvas.hidden = false;
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  const context = canvas.getContext("2d", { alpha: false });
  const colours = theme();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.ground;
  context.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  const capacity = timeline.head.slots[worker % timeline.head.num_slots].capacity_bytes;
  const steps = timeline.memory(worker);
  const peak = steps.reduce((most, step) => Math.max(most, step[1]), 0);
  const top = Math.max(peak, capacity ?? 0);
  canvas.hidden = top === 0;
  if (top === 0) return "The job gives no activation bytes, so memory is not drawn.";
  const [width, height] = [canvas.clientWidth - gutter, canvas.clientHeight - 8];
  const x = (ns) => gutter + Math.min(1, Math.max(0, (ns - view.from) / (view.to - view.from))) * width;
  const y = (held) => 6 + (1 - held / top) * (height - 6);
  context.beginPath();
  context.moveTo(x(view.from), y(0));
  let before = 0;
  for (const [ns, held] of steps) {
    context.lineTo(x(ns), y(before));
    context.lineTo(x(ns), y(held));
    before = held;
  }
  context.lineTo(x(view.to), y(before));
  context.lineTo(x(view.to), y(0));
  context.closePath();
  context.fillStyle = colours.low;
  context.fill();
  context.strokeStyle = colours.high;
  context.stroke();
  context.fillStyle = colours.soft;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(bytes(peak), gutter - 6, Math.max(8, y(peak)));
  if (capacity !== null) {
    context.strokeStyle = colours.down;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(gutter, y(capacity));
    context.lineTo(gutter + width, y(capacity));
    context.stroke();
    context.setLineDash([]);
  }
  return capacity === null ? `Peak ${bytes(peak)}; memory does not bind.` : `Peak ${bytes(peak)} of ${bytes(capacity)} (dashed line).`;
}
