// Draws the cells of the map: a colour, a sign that says the same, and names where there is room.

import { between, fit, inkOn } from "./colours.js";

const [LEAST_CELL, MOST_CELL] = [6, 34];
const [LEAST_NAMED, MOST_NAMED] = [64, 190];
const [SMALL, MOST_RINGS] = [10, 64];
const [LEFT, TOP, BETWEEN] = [34, 18, 12];
const FONT = "11px system-ui, sans-serif";

/** Where cells lie on a canvas as wide as `room`: a column a pipeline, a line a slot; more pipelines than fit go on below. */
export class MapLayout {
  constructor({ num_pipelines: pipelines, num_slots: slots }, room) {
    const width = Math.max(120, room - 18 - LEFT);
    this.pipelines = pipelines;
    this.slots = slots;
    this.isNamed = width / pipelines >= LEAST_NAMED;
    const square = Math.min(MOST_CELL, Math.max(LEAST_CELL, Math.floor(Math.min(width / pipelines, 26 + 400 / slots))));
    this.cellHeight = this.isNamed ? Math.max(20, square) : square;
    this.cellWidth = this.isNamed ? Math.min(MOST_NAMED, Math.floor(width / pipelines)) : square;
    this.bands = Math.ceil(pipelines / Math.max(1, Math.min(pipelines, Math.floor(width / this.cellWidth))));
    this.columns = Math.ceil(pipelines / this.bands);
    this.bandHeight = TOP + slots * this.cellHeight + BETWEEN;
    this.width = LEFT + this.columns * this.cellWidth + 4;
    this.height = this.bands * this.bandHeight;
    this.gap = square >= 10 ? 2 : 1;
  }

  /** Upper left corner of a worker's cell. */
  corner(worker) {
    const pipeline = Math.floor(worker / this.slots);
    return [LEFT + (pipeline % this.columns) * this.cellWidth, Math.floor(pipeline / this.columns) * this.bandHeight + TOP + (worker % this.slots) * this.cellHeight];
  }

  /** Worker at a place; null beside the cells. */
  workerAt(x, y) {
    const column = Math.floor((x - LEFT) / this.cellWidth);
    const band = Math.floor(y / this.bandHeight);
    const slot = Math.floor((y - band * this.bandHeight - TOP) / this.cellHeight);
    const pipeline = band * this.columns + column;
    const isInside = column >= 0 && column < this.columns && slot >= 0 && slot < this.slots && pipeline < this.pipelines;
    return isInside ? pipeline * this.slots + slot : null;
  }
}

/** Draws all cells; `shown` is {layout, cells, mode, chosen, colours, nameOf}. */
export function drawMap(context, shown) {
  const { layout, cells, chosen, colours } = shown;
  context.fillStyle = colours.ground;
  context.fillRect(0, 0, layout.width, layout.height);
  drawAxes(context, shown);
  const [wide, high] = [layout.cellWidth - layout.gap, layout.cellHeight - layout.gap];
  const groups = new Map();
  cells.forEach((state, worker) => {
    const colour = colourOf(state, shown);
    if (!groups.has(colour)) groups.set(colour, []);
    groups.get(colour).push(worker);
  });
  for (const [colour, workers] of groups) {
    context.fillStyle = colour;
    for (const worker of workers) context.fillRect(...layout.corner(worker), wide, high);
  }
  cells.forEach((state, worker) => drawSigns(context, shown, state, layout.corner(worker), wide, high));
  if (layout.isNamed) drawNames(context, shown, groups, wide, high);
  if (high < SMALL) ringFew(context, shown, high);
  if (chosen !== null && high < SMALL) ring(context, shown, chosen, colours.pick, high);
  else if (chosen !== null) {
    const [x, y] = layout.corner(chosen);
    frame(context, colours.ground, x - 1, y - 1, wide + 2, high + 2, [], 5);
    frame(context, colours.pick, x - 1, y - 1, wide + 2, high + 2, [], 3);
  }
}

function colourOf(state, { mode, colours }) {
  if (state.status === "down") return colours.down;
  if (mode === "heat") {
    if (state.heat === null) return colours.unknown;
    return state.heat === "lost" ? colours.heatLost : between(colours.heatLow, colours.heatHigh, Math.min(1, state.heat / 0.5));
  }
  if (state.status === "slow") return colours.slow;
  return state.load === null ? colours.unknown : between(colours.low, colours.high, state.load);
}

/** Crosses, halves, hatches and frames: no state is told by colour alone. */
function drawSigns(context, { layout, mode, colours }, state, [x, y], wide, high) {
  const size = Math.min(wide, high);
  if (state.status === "down") {
    context.strokeStyle = inkOn(colours.down);
    context.lineWidth = size >= 12 ? 2.5 : 1.2;
    const edge = size >= 12 ? 0.22 * size : 1.2;
    context.beginPath();
    context.moveTo(x + edge, y + edge);
    context.lineTo(x + size - edge, y + size - edge);
    context.moveTo(x + size - edge, y + edge);
    context.lineTo(x + edge, y + size - edge);
    context.stroke();
  } else if (mode === "heat") {
    if (state.heat === "lost") hatch(context, inkOn(colours.heatLost), x, y, layout.isNamed ? size * 0.4 : wide, high);
  } else if (state.status === "slow") {
    context.fillStyle = colours.ink;
    context.beginPath();
    context.moveTo(x + wide - size, y + size);
    context.lineTo(x + wide, y + size);
    context.lineTo(x + wide, y);
    context.fill();
  } else if (state.moved && !layout.isNamed) {
    context.fillStyle = colours.ink;
    context.fillRect(x + wide / 2 - 1.5, y + high / 2 - 1.5, 3, 3);
  }
  if (state.tried) frame(context, colours.tried, x, y, wide, high, [3, 2], 2);
  if (state.helps) frame(context, colours.tried, x, y, wide, high, [], 2);
}

/** Stripes over a cell: what would stop training. */
function hatch(context, colour, x, y, wide, high) {
  context.save();
  context.beginPath();
  context.rect(x, y, wide, high);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  for (let left = x - high; left < x + wide; left += 5) {
    context.moveTo(left, y + high);
    context.lineTo(left + high, y);
  }
  context.stroke();
  context.restore();
}

function drawNames(context, { layout, mode, nameOf, cells }, groups, wide, high) {
  context.font = FONT;
  context.textBaseline = "middle";
  for (const [colour, workers] of groups) {
    context.fillStyle = inkOn(colour);
    for (const worker of workers) {
      const state = cells[worker];
      const [x, y] = layout.corner(worker);
      const isLost = mode === "heat" && state.heat === "lost";
      const left = state.status === "down" ? Math.min(wide, high) : isLost ? 0.4 * Math.min(wide, high) + 4 : 5;
      const note = state.status === "down" ? "" : mode === "heat" ? state.short : state.moved ? `at ${state.moved}` : "";
      const noteWidth = note ? context.measureText(note).width + 8 : 0;
      const hasRoom = wide - left - noteWidth >= 34;
      context.textAlign = "left";
      context.fillText(fit(context, nameOf(worker), wide - left - 4 - (hasRoom ? noteWidth : 0)), x + left, y + high / 2);
      context.textAlign = "right";
      if (note && hasRoom) context.fillText(note, x + wide - 4, y + high / 2);
    }
  }
}

/** Among thousands of small cells a few that are down or slow would not be seen: they get a ring. */
function ringFew(context, { layout, cells, colours }, size) {
  const hurt = cells.flatMap((state, worker) => (state.status === "live" ? [] : [worker]));
  if (hurt.length > MOST_RINGS) return;
  for (const worker of hurt) ring(context, { layout, colours }, worker, cells[worker].status === "down" ? colours.down : colours.slow, size);
}

function ring(context, { layout, colours }, worker, colour, size) {
  const [x, y] = layout.corner(worker);
  for (const [stroke, width] of [[colours.ground, 6], [colour, 3]]) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.beginPath();
    context.arc(x + size / 2, y + size / 2, size + 3, 0, 2 * Math.PI);
    context.stroke();
  }
}

function frame(context, colour, x, y, wide, high, dash, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
  context.setLineDash([]);
}

function drawAxes(context, { layout, colours }) {
  context.fillStyle = colours.soft;
  context.font = FONT;
  context.textBaseline = "middle";
  const [every, each] = [Math.ceil(26 / layout.cellWidth), Math.ceil(11 / layout.cellHeight)];
  for (let band = 0; band < layout.bands; band += 1) {
    const y = band * layout.bandHeight;
    context.textAlign = "center";
    for (let column = 0; column < layout.columns && band * layout.columns + column < layout.pipelines; column += every) {
      context.fillText(`${layout.isNamed ? "pipeline " : ""}${band * layout.columns + column}`, LEFT + column * layout.cellWidth + layout.cellWidth / 2, y + TOP - 8);
    }
    context.textAlign = "right";
    for (let slot = 0; slot < layout.slots; slot += each) context.fillText(`s${slot}`, LEFT - 6, y + TOP + slot * layout.cellHeight + layout.cellHeight / 2);
  }
}
