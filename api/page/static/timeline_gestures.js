// What pointers and keys do to a chart: drag, pinch, wheel, click, arrows.

const [LEAST_PINCH_PX, CLICK_PX] = [8, 4];

/** Lets a canvas move and zoom a timeline panel. */
export function listen(panel, chart) {
  const { canvas } = chart.gantt;
  listenToWheel(panel, chart);
  listenToPointers(panel, chart);
  canvas.addEventListener("dblclick", (event) => panel.zoom(0.5, shareOf(chart, event.offsetX)));
  canvas.addEventListener("keydown", (event) => onKey(panel, event));
}

/** Place on the chart as a share of its width. */
function shareOf({ gantt }, x) {
  return Math.min(1, Math.max(0, (x - gantt.gutter) / gantt.plotWidth));
}

function listenToWheel(panel, chart) {
  const { canvas } = chart.gantt;
  canvas.addEventListener("wheel", (event) => {
    // Without a key or the focus the wheel scrolls the document, as everywhere.
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (event.shiftKey) panel.pan(0, Math.sign(event.deltaY || event.deltaX) * 2);
    else panel.zoom(Math.exp((Math.sign(event.deltaY) * Math.min(60, Math.abs(event.deltaY))) / 220), shareOf(chart, event.offsetX));
  }, { passive: false });
}

function listenToPointers(panel, chart) {
  const { gantt } = chart;
  const { canvas } = gantt;
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      panel.hover(chart, event);
      return;
    }
    const now = [event.offsetX, event.offsetY];
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    if (pointers.size === 2) pinch(panel, chart, before, now, [...pointers].find(([id]) => id !== event.pointerId)[1]);
    else if (pointers.size === 1 && moved > CLICK_PX) panel.pan((before[0] - now[0]) / gantt.plotWidth, event.pointerType === "mouse" ? (before[1] - now[1]) / panel.view.rowHeight : 0);
    pointers.set(event.pointerId, now);
  });
  const end = (event) => {
    const isClick = pointers.delete(event.pointerId) && moved <= CLICK_PX && event.type === "pointerup";
    if (isClick) panel.click(chart, event.offsetX, event.offsetY);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => panel.leave());
}

function pinch(panel, chart, before, now, other) {
  const [was, is] = [Math.abs(before[0] - other[0]), Math.abs(now[0] - other[0])];
  if (was > LEAST_PINCH_PX && is > LEAST_PINCH_PX) panel.zoom(was / is, shareOf(chart, (now[0] + other[0]) / 2));
}

function onKey(panel, event) {
  const actions = {
    ArrowLeft: () => panel.pan(-0.1), ArrowRight: () => panel.pan(0.1),
    ArrowUp: () => panel.pan(0, -1), ArrowDown: () => panel.pan(0, 1),
    "+": () => panel.zoom(0.7), "=": () => panel.zoom(0.7), "-": () => panel.zoom(1 / 0.7), 0: () => panel.fit(),
    PageUp: () => panel.step(-1), PageDown: () => panel.step(1),
  };
  if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  actions[event.key]();
}
