// Draws made-up plans and clusters with the page's own modules; run in the page by benchmarks/page.py.
async () => {
  const { Timeline } = await import("/page/timeline_data.js");
  const { TimelinePanel } = await import("/page/timeline.js");
  const { ClusterMap } = await import("/page/map.js");
  const arrays = { f64: Float64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array };
  // Bytes of a timeline with `perWorker` operations on each worker, a sixth of them idle, every ninth rerouted.
  function bytesOf(pipelines, slots, perWorker) {
    const workers = pipelines * slots, rows = workers * perWorker, names = [["offsets", "u32", workers + 1], ["start_ns", "f64", rows],
      ["end_ns", "f64", rows], ["held_bytes", "f64", rows], ["home", "u32", rows], ["microbatch", "u32", rows], ["stage", "u16", rows],
      ["kind", "u8", rows], ["rerouted", "u8", rows]];
    let size = 0;
    const columns = names.map(([name, type, count]) => {
      const column = { name, type, count, offset: size };
      size += Math.ceil(count * arrays[type].BYTES_PER_ELEMENT / 8) * 8;
      return column;
    });
    const span = perWorker * 1200;
    const head = { version: 1, plan_id: "", job: "bench", status: "feasible", period_ns: span, bound_ns: span, fault_free_ns: span,
      baseline_1f1b_ns: null, failures: "none", solver: "", optimizer: "staggered", num_pipelines: pipelines, num_slots: slots,
      span_ns: span + 3000, dead: [], slow: [], ranks: [], columns,
      slots: Array.from({ length: slots }, (_, s) => ({ stages: [s], sync_start_ns: span, sync_ns: 3000, capacity_bytes: null })) };
    let text = JSON.stringify(head);
    text = text.padEnd(Math.ceil(text.length / 8) * 8);
    const buffer = new ArrayBuffer(8 + text.length + size), view = new DataView(buffer);
    view.setUint32(0, 0x5250544c);
    view.setUint32(4, text.length, true);
    new Uint8Array(buffer, 8).set(new TextEncoder().encode(text));
    const at = Object.fromEntries(columns.map((c) => [c.name, new arrays[c.type](buffer, 8 + text.length + c.offset, c.count)]));
    for (let worker = 0; worker <= workers; worker += 1) at.offsets[worker] = worker * perWorker;
    for (let row = 0; row < rows; row += 1) {
      const n = row % perWorker;
      at.start_ns[row] = n * 1200;
      at.end_ns[row] = n * 1200 + 1000;
      at.kind[row] = n % 3;
      at.home[row] = n % pipelines;
      at.microbatch[row] = n % 97;
      at.rerouted[row] = n % 9 === 0 ? 1 : 0;
    }
    return buffer;
  }
  const flush = (canvas) => canvas.getContext("2d").getImageData(0, 0, 1, 1);
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  window.bench = {
    async timeline(pipelines, slots, perWorker, rowHeight, steps) {
      const bytes = bytesOf(pipelines, slots, perWorker);
      document.getElementById("main").replaceChildren();
      const panel = new TimelinePanel((worker) => `node-${worker}`);
      document.getElementById("main").append(panel.element);
      await frame();
      const canvas = panel.charts[0].gantt.canvas;
      let began = performance.now();
      panel.show(new Timeline(bytes), null);
      panel.view.rowHeight = rowHeight;
      canvas.style.height = "640px";
      panel.draw();
      flush(canvas);
      const first = performance.now() - began, zooms = [];
      for (let n = 0; n < steps; n += 1) {
        began = performance.now();
        panel.zoom(n % 2 ? 1 / 0.8 : 0.8, 0.3);
        panel.draw();
        flush(canvas);
        zooms.push(performance.now() - began);
        await frame();
      }
      return { first, zooms, bars: Math.min(pipelines * slots, Math.ceil(618 / rowHeight)) * perWorker };
    },
    async map(pipelines, slots) {
      const workers = pipelines * slots;
      const cluster = { num_pipelines: pipelines, num_slots: slots, nodes: Array.from({ length: workers }, (_, n) => `n${n}`), racks: ["r"],
        rack_of_node: new Array(workers).fill(0), worker_nodes: Array.from({ length: workers }, (_, n) => [n]) };
      const cells = cluster.worker_nodes.map((_, n) => ({ status: n % 500 ? "live" : "down", speed: null, load: (n % 50) / 50, moved: null,
        tried: n % 1000 === 7 ? "down" : null, helps: n % 300 === 1, heat: null, heatText: "", short: "" }));
      document.getElementById("main").replaceChildren();
      const map = new ClusterMap();
      document.getElementById("main").append(map.element);
      await frame();
      const began = performance.now();
      map.show(cluster, cells, "health");
      flush(map.canvas);
      return performance.now() - began;
    },
  };
}
