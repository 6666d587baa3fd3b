// The timeline as it is shown, as an SVG file. It is written as text, so everything from outside is escaped.

import { KIND_COLOURS, KIND_NAMES } from "./colours.js";
import { duration } from "./format.js";
import { KINDS } from "./timeline_data.js";

const [WIDTH, LEFT, ROW, TOP] = [1400, 190, 18, 40];
const [MOST_BARS, MOST_NAME] = [50_000, 22];

const escape = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

/** The SVG of both charts, of the workers and times that the panel shows: {text, isCut}, cut where there are too many bars. */
export function svgOf(panel) {
  const { view } = panel;
  const parts = [];
  let y = 10;
  let isCut = false;
  for (const { title, gantt } of panel.charts) {
    if (!gantt.timeline) continue;
    const shown = Math.max(1, Math.ceil(gantt.plotHeight / view.rowHeight));
    const workers = view.order.slice(Math.floor(view.top), Math.floor(view.top) + shown);
    const drawn = chart(title, gantt, workers, view, y);
    parts.push(drawn.text);
    isCut ||= drawn.isCut;
    y += TOP + workers.length * ROW + 24;
  }
  const legend = KIND_NAMES.map((name, n) => `<rect x="${LEFT + n * 170}" y="${y}" width="12" height="12" fill="${KIND_COLOURS[n]}"/><text x="${LEFT + n * 170 + 18}" y="${y + 10}">${escape(name)}</text>`).join("");
  const rerouted = `<rect x="${LEFT + 680}" y="${y}" width="12" height="12" fill="#fff" stroke="#000" stroke-width="1.5"/><text x="${LEFT + 698}" y="${y + 10}">rerouted from another pipeline</text>`;
  const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y + 30}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}${legend}${rerouted}</svg>`;
  return { text, isCut };
}

function chart(title, gantt, workers, view, top) {
  const { timeline } = gantt;
  const { head, start_ns: start, end_ns: end } = timeline;
  const scale = (WIDTH - LEFT - 10) / (view.to - view.from);
  const x = (ns) => (LEFT + (Math.min(view.to, Math.max(view.from, ns)) - view.from) * scale).toFixed(2);
  const parts = [`<text x="10" y="${top + 14}" font-size="14">${escape(`${head.job}: ${title}, period ${duration(head.period_ns)}, failed: ${head.failures}`.slice(0, 240))}</text>`];
  let bars = 0;
  workers.forEach((worker, n) => {
    const y = top + TOP - 12 + n * ROW;
    parts.push(`<text x="${LEFT - 6}" y="${y + 11}" text-anchor="end">${escape(`${timeline.nameOf(worker)} ${endOf(gantt.nodeOf(worker))}`)}</text>`);
    if (timeline.dead.has(worker)) {
      parts.push(`<rect x="${LEFT}" y="${y}" width="${WIDTH - LEFT - 10}" height="${ROW - 3}" fill="#e8e8e8"/><text x="${LEFT + 8}" y="${y + 11}">down</text>`);
      return;
    }
    const slot = head.slots[worker % head.num_slots];
    if (slot.sync_ns && slot.sync_start_ns < view.to) parts.push(`<rect x="${x(slot.sync_start_ns)}" y="${y}" width="${(x(slot.sync_start_ns + slot.sync_ns) - x(slot.sync_start_ns)).toFixed(2)}" height="${ROW - 3}" fill="#999"/>`);
    for (let row = timeline.firstBehind(worker, view.from); row < timeline.offsets[worker + 1] && start[row] < view.to && bars < MOST_BARS; row += 1) {
      bars += 1;
      const wide = x(end[row]) - x(start[row]);
      const frame = timeline.rerouted[row] ? ' stroke="#000" stroke-width="1.5"' : "";
      parts.push(`<rect x="${x(start[row])}" y="${y}" width="${Math.max(0.1, wide - 0.5).toFixed(2)}" height="${ROW - 3}" fill="${KIND_COLOURS[timeline.kind[row]]}"${frame}><title>${timeline.label(row)}</title></rect>`);
      if (wide > 30) parts.push(`<text x="${x((start[row] + end[row]) / 2)}" y="${y + 11}" text-anchor="middle">${KINDS[timeline.kind[row]]}${timeline.home[row]}.${timeline.microbatch[row]}</text>`);
    }
  });
  return { text: parts.join(""), isCut: bars >= MOST_BARS };
}

const endOf = (node) => (node.length > MOST_NAME ? `…${node.slice(1 - MOST_NAME)}` : node);
