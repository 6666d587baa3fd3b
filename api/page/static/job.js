// One job: what happened and what to do, its map, its plan over time, its history, and what would happen if more failed.

import { ServiceError, download, getJson, jobPath, save } from "./api.js";
import { figure, fill, h, name } from "./dom.js";
import { ago, clock, count, duration, microseconds, percent, some } from "./format.js";
import { heatSummary, historyTable, ladderTable } from "./history.js";
import { ClusterMap } from "./map.js";
import { svgOf } from "./svg.js";
import { TimelinePanel, loadTimeline } from "./timeline.js";
import { fromText, toText } from "./trial.js";
import { SEVERITIES, bestPossible, capital, downOf, ofEpoch, severity, slowOf, whatFailed, whatItCosts, whatToDo } from "./verdict.js";
import { WhatIfPanel } from "./whatif.js";

const HISTORY = 100;

/** The view of one job; `query` is what its link says. */
export class JobView {
  constructor(live, id, query) {
    this.live = live;
    this.id = id;
    this.pinned = Number(query.get("epoch")) || null;
    this.mode = query.get("mode") === "heat" ? "heat" : "health";
    this.query = query;
    this.body = null;
    this.cluster = null;
    this.heat = null;
    this.plans = [null, null];
    this.round = 0;
    this.map = new ClusterMap();
    this.whatIf = new WhatIfPanel(id, this.map);
    this.timeline = new TimelinePanel();
    this.#build();
    this.onChange = (event) => { if (event.detail.includes(this.id)) this.#follow(); };
  }

  async open() {
    document.title = `${this.id} · RePlan`;
    this.live.addEventListener("change", this.onChange);
    this.ticking = setInterval(() => {
      for (const element of this.verdict.querySelectorAll("[data-at]")) element.textContent = ago(element.dataset.at, this.live.now());
    }, 1000);
    await this.load();
    const number = (key) => (this.query.has(key) ? Number(this.query.get(key)) : Number.NaN);
    this.timeline.restore({ from: number("from"), to: number("to"), top: number("top"), row: number("row") });
    this.#chooseByName(this.query.get("worker"));
    this.whatIf.restore(this.query.getAll("try").map(fromText).filter(Boolean));
    this.isOpen = true;
    if (this.live.state === "live" && (this.live.jobs.has(this.id) || this.body)) this.#follow();
  }

  close() {
    this.round += 1;
    this.live.removeEventListener("change", this.onChange);
    clearInterval(this.ticking);
  }

  #build() {
    this.trouble = h("p", { class: "problem banner", hidden: true, role: "alert" });
    this.pinnedNote = h("p", { class: "banner", hidden: true });
    this.verdict = h("section", { class: "card verdict", "aria-label": "how it stands" });
    this.heatText = h("div", {});
    this.mapLegend = h("ul", { class: "legend" });
    const radio = (value, text) => h("label", {}, h("input", { type: "radio", name: "mode", value, checked: this.mode === value, onchange: () => this.#setMode(value) }), ` ${text}`);
    this.mapCard = h("section", { class: "card map-card", "aria-label": "map" }, h("h2", {}, "Map"),
      h("div", { class: "toolbar" }, radio("health", "health and load"), radio("heat", "which node hurts most")),
      this.heatText, this.map.element, this.mapLegend);
    this.columns = h("div", { class: "columns" }, this.mapCard, this.whatIf.element);
    this.ladder = h("section", { class: "card", "aria-label": "answers" });
    this.history = h("section", { class: "card", "aria-label": "history" });
    this.downloads = h("section", { class: "card", "aria-label": "downloads" });
    this.timelineNote = h("p", { class: "note", role: "status" });
    this.element = h("div", {},
      h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Jobs"), " / ", name(this.id)), h("h1", {}, name(this.id)),
      this.trouble, this.pinnedNote, this.verdict,
      this.columns,
      h("section", { class: "card", "aria-label": "timeline" }, h("h2", {}, "Timeline"), this.timelineNote, this.timeline.element),
      this.ladder, this.history, this.downloads);
    this.map.addEventListener("choose", (event) => {
      this.whatIf.choose(event.detail);
      this.timeline.choose(this.#positionOf(event.detail));
    });
    this.whatIf.addEventListener("tried", (event) => {
      this.#drawMap();
      this.#remember();
      // What was searched for is ready from now on, and so is known to the heat map.
      if (event.detail?.would_be.source === "solved" && this.heat) this.#refreshHeat();
    });
    this.timeline.addEventListener("changed", () => this.#remember());
  }

  /** Another epoch has come, or the job is gone. */
  #follow() {
    if (!this.isOpen) return; // what is being loaded is the newest, and is followed from then on
    if (!this.live.jobs.has(this.id)) {
      this.#fail("This job was deleted. What you see is how it last stood.");
      return;
    }
    const row = this.live.jobs.get(this.id);
    if (this.pinned !== null) this.#showPinned();
    else if (this.body === null || row.epoch !== this.body.epoch) this.load();
    else this.#drawVerdict();
  }

  #fail(text) {
    this.trouble.hidden = text === null;
    fill(this.trouble, text ?? "");
  }

  async load() {
    this.round += 1;
    const round = this.round;
    const current = () => round === this.round;
    try {
      const path = this.pinned === null ? "epochs/current" : `epochs/${this.pinned}`;
      const [body, cluster] = await Promise.all([getJson(jobPath(this.id, path)), getJson(jobPath(this.id, "cluster"))]);
      if (!current()) return;
      this.#fail(null);
      Object.assign(this, { body, cluster });
      this.#drawVerdict();
      this.#showPinned();
      fill(this.ladder, h("h2", {}, "Answers and what they would cost"), ladderTable(body));
      this.#drawMap();
      await Promise.all([this.#loadPlans(current), this.#loadHistory(current), this.#loadHeat(current), this.whatIf.follow(this.pinned === null ? body : null)]);
    } catch (error) {
      if (!current()) return;
      if (!(error instanceof ServiceError)) throw error;
      this.#fail(error.status === 404 ? "There is no such job, or no such epoch of it." : `${capital(error.message)}.`);
    }
  }

  async #loadPlans(current) {
    fill(this.timelineNote, "Drawing the plan…");
    const epoch = this.body.epoch;
    const keep = this.plans[0] !== null || this.plans[1] !== null;
    const wanted = [this.body.plan ? loadTimeline(this.id, epoch, false) : Promise.resolve(null), loadTimeline(this.id, epoch, true)];
    const found = await Promise.allSettled(wanted);
    if (!current()) return;
    this.plans = found.map((result) => (result.status === "fulfilled" ? result.value : null));
    const notes = found.filter((result) => result.status === "rejected").map((result) => `${capital(result.reason.message)}.`);
    if (!this.body.plan) notes.unshift("There is no plan for these failures; the chart shows the plan with everybody live.");
    else if (this.plans[0]) notes.unshift(`${this.timeline.summaryOf(this.plans[0])}. Wheel with Ctrl, or + and −, to zoom; drag to move.`);
    const [inForce, faultFree] = this.plans;
    if (inForce && faultFree && faultFree.head.period_ns < inForce.head.fault_free_ns) {
      notes.push(`A better fault-free plan was found since this one was made; shares of the throughput count from the older one, ${duration(inForce.head.fault_free_ns)}.`);
    }
    fill(this.timelineNote, notes.join(" "));
    this.timeline.show(this.plans[0], this.plans[1], keep);
    this.#drawMap();
    this.#drawDownloads();
  }

  async #loadHistory(current) {
    const newest = this.live.jobs.get(this.id)?.epoch ?? this.body.epoch;
    const bodies = await getJson(`${jobPath(this.id, "epochs")}?after=${Math.max(0, newest - HISTORY)}`);
    if (!current()) return;
    fill(this.history, h("h2", {}, "History"), historyTable(bodies, this.body.epoch, (epoch) => this.#address({ epoch })),
      bodies.length >= HISTORY ? h("p", { class: "note" }, `The newest ${HISTORY} epochs.`) : null);
  }

  async #loadHeat(current) {
    const heat = await getJson(jobPath(this.id, "heat"));
    if (!current()) return;
    this.heat = heat;
    this.#drawMap();
  }

  async #refreshHeat() {
    const round = this.round;
    await this.#loadHeat(() => round === this.round).catch(() => {}); // the old one is as good as it was
  }

  #setMode(mode) {
    this.mode = mode;
    this.#drawMap();
    this.#remember();
  }

  #showPinned() {
    const newest = this.live.jobs.get(this.id)?.epoch ?? this.pinned;
    const isOld = this.pinned !== null && newest !== this.pinned;
    this.pinnedNote.hidden = this.pinned === null;
    if (this.pinned === null) return;
    fill(this.pinnedNote, isOld ? `This is epoch ${this.pinned}, not what runs now: the job is at epoch ${newest}. ` : `This is epoch ${this.pinned}, the current one; this view stays with it. `, h("a", { href: `#/jobs/${encodeURIComponent(this.id)}` }, "Follow the current epoch"));
  }

  #facts() {
    const row = this.live.jobs.get(this.id);
    if (row && row.epoch === this.body.epoch) return row;
    return { ...ofEpoch(this.body, this.cluster.num_pipelines * this.cluster.num_slots), epoch: this.body.epoch, missing: [] };
  }

  #drawVerdict() {
    const facts = this.#facts();
    const kind = severity(facts);
    const missing = facts.num_live - facts.num_acknowledged;
    const [down, slow] = [downOf(this.body), slowOf(this.body)];
    this.verdict.className = `card verdict ${kind}`;
    fill(this.verdict,
      h("p", { class: "state" }, SEVERITIES[kind], h("span", { class: "since" }, ` since ${clock(this.body.created_at)} (`, h("span", { "data-at": this.body.created_at }, ago(this.body.created_at, this.live.now())), ")")),
      h("div", { class: "answers" },
        h("div", {}, h("h2", {}, "What failed"), h("p", {}, whatFailed(facts)), down.length ? h("p", {}, h("strong", {}, "Down: "), name(some(down, 8))) : null, slow.length ? h("p", {}, h("strong", {}, "Slow: "), name(some(slow, 6))) : null,
          this.body.failed_workers.length ? h("p", { class: "note" }, `Workers that are down (pipeline/slot): ${some(this.body.failed_workers, 8)}`) : null,
          facts.problem ? h("p", { class: "problem" }, `${capital(facts.problem)}.`) : null),
        h("div", {}, h("h2", {}, "What it costs"), h("p", {}, whatItCosts(facts)), h("p", { class: "note" }, capital(bestPossible(facts)))),
        h("div", {}, h("h2", {}, "What to do"), h("p", {}, whatToDo(facts)),
          facts.has_plan && missing && facts.missing.length ? h("p", { class: "note" }, `Without acknowledgement: ${some(facts.missing, 8)}`) : null,
          this.body.migrations.length ? h("p", {}, `${count(this.body.migrations.length, "worker")} first ${this.body.migrations.length === 1 ? "loads" : "load"} a state: ${some(this.body.migrations.map((move) => `${move.from} takes ${move.to}${move.copy_from ? "" : " (from a checkpoint)"}`), 4)}.`) : null)),
      h("dl", { class: "figures" },
        figure("Epoch", String(this.body.epoch), `revision ${this.body.revision}`),
        figure("Throughput kept", facts.has_plan ? percent(facts.throughput_kept) : "none"),
        figure("Period", facts.has_plan ? microseconds(facts.period_us) : "none", facts.has_plan ? `bound ${microseconds(facts.bound_us)}` : null),
        !facts.has_plan ? null : figure("Plan taken by", `${facts.num_acknowledged} of ${count(facts.num_live, "worker")}`, missing ? "the others have not acknowledged it" : null),
        "last_event_at" in facts ? figure("Last event", h("span", facts.last_event_at ? { "data-at": facts.last_event_at } : {}, ago(facts.last_event_at, this.live.now()))) : null,
        !facts.has_plan ? null : figure("Holds from", this.body.from_iteration === null ? "when all agree" : `iteration ${this.body.from_iteration}`)));
  }

  /** Position in the plan where a worker stands, as an index. */
  #positionOf(worker) {
    return this.#moved().get(worker) ?? worker;
  }

  #moved() {
    const index = (text) => { const [k, s] = text.split("/").map(Number); return k * this.cluster.num_slots + s; };
    return new Map(this.body.moved.map((entry) => [index(entry.worker), index(entry.position)]));
  }

  #drawMap() {
    if (!this.cluster || !this.body) return;
    this.columns.classList.toggle("wide", this.cluster.num_pipelines > 48);
    this.map.show(this.cluster, this.#cells(), this.mode);
    this.heatText.hidden = this.mode !== "heat" || !this.heat;
    if (!this.heatText.hidden) heatSummary(this.heatText, this.heat, this.cluster);
    this.#drawMapLegend();
  }

  #cells() {
    const { num_slots: slots, num_pipelines: pipelines, worker_nodes: nodesOf } = this.cluster;
    const [plan] = this.plans;
    const fits = plan !== null && plan.numWorkers === slots * pipelines && this.body.plan !== null;
    const moved = this.#moved();
    const down = new Set(this.body.failed_workers);
    const { answer } = this.whatIf;
    const would = answer ? new Set(answer.would_be.failed_workers) : null;
    const helps = new Set(answer ? answer.reroutes.map((entry) => entry.runs_on) : []);
    const most = fits ? Math.max(...plan.loads) : 1;
    return nodesOf.map((nodes, worker) => {
      const label = `${Math.floor(worker / slots)}/${worker % slots}`;
      const position = moved.get(worker) ?? worker;
      const isDown = down.has(label);
      const speed = fits ? (plan.slow.get(position) ?? null) : null;
      const [heat, heatText] = this.#heatOf(nodes);
      return {
        status: isDown ? "down" : speed === null ? "live" : "slow",
        speed: speed === null ? null : speed / 1e6,
        load: fits && !isDown ? plan.loads[position] : null,
        most,
        moved: position === worker ? null : `${Math.floor(position / slots)}/${position % slots}`,
        tried: would === null || would.has(label) === isDown ? null : isDown ? "back" : "down",
        helps: helps.has(label),
        heat,
        heatText,
      };
    });
  }

  /** How much losing the worst of some nodes hurts: 0 to 1, "lost", or null where not known; and in words. */
  #heatOf(nodes) {
    if (this.heat === null) return [null, ""];
    const ranks = nodes.map((node) => this.heat.node_groups[node]).filter((group) => group !== null && group !== undefined);
    if (!ranks.length) return [null, ""];
    const group = this.heat.groups[Math.min(...ranks)];
    if (group.outcome === "ready") return [Math.min(1, Math.max(0, 1 - group.throughput_kept)), `if it fails too: keeps ${percent(group.throughput_kept)}`];
    return group.outcome === "not_ready" ? [null, "if it fails too: not known yet, try it"] : ["lost", group.outcome === "stage_lost" ? "if it fails too: training stops" : "if it fails too: optimizer state is lost"];
  }

  #drawMapLegend() {
    const swatch = (kind, text) => h("li", {}, h("span", { class: `swatch ${kind}` }), text);
    const cells = this.map.cells;
    const number = (status) => cells.filter((cell) => cell.status === status).length;
    const down = swatch("down", `✕ down (${number("down")})`);
    if (this.mode === "heat") {
      fill(this.mapLegend, down, swatch("heat-low", "losing it costs nothing"), swatch("heat-high", "losing it costs half or more"), swatch("heat-lost", "losing it stops training"), swatch("unknown", "not known until tried"));
    } else {
      fill(this.mapLegend, down, swatch("slow", `◢ slow (${number("slow")})`), swatch("low", "idle"), swatch("high", "busy all the period"), swatch("unknown", "load not known"),
        this.body.moved.length ? swatch("moved", `▪ stands elsewhere (${this.body.moved.length})`) : null);
    }
    this.mapLegend.append(h("li", {}, "Columns are pipelines, lines (s0, s1, …) are slots."));
    if (this.whatIf.answer) this.mapLegend.append(swatch("tried", "dashed: changes in the what-if"), swatch("helps", "framed: takes over in the what-if"));
  }

  #drawDownloads() {
    const epoch = this.body.epoch;
    const stem = `${this.id}-epoch-${epoch}`;
    const failed = h("p", { class: "problem", role: "alert" });
    const button = (text, note, action) => h("li", {}, h("button", { type: "button", onclick: async () => {
      fill(failed);
      try {
        await action();
      } catch (error) {
        fill(failed, `${capital(error.message)}.`);
      }
    } }, text), " ", note);
    const worker = h("input", { type: "text", id: "program-of", size: 8, value: "0/0", "aria-label": "worker, pipeline/slot" });
    fill(this.downloads, h("h2", {}, "Downloads and link"), h("ul", { class: "downloads" },
      button("Plan file", "for replan validate, replay and show", () => download(jobPath(this.id, "epochs", epoch, "plan"), `${stem}-plan.json`)),
      button("Chrome trace", "for ui.perfetto.dev, which runs in the browser", () => download(jobPath(this.id, "epochs", epoch, "trace"), `${stem}-trace.json`)),
      button("SVG", "of the timeline as it is shown", () => save(new Blob([svgOf(this.timeline)], { type: "image/svg+xml" }), `${stem}.svg`)),
      h("li", {}, button("Program of worker", "", () => download(jobPath(this.id, "epochs", epoch, "programs", worker.value.trim().split("/").map(encodeURIComponent).join("/")), `${stem}-program-${worker.value}.json`)).firstChild, " ", worker),
      button("Copy a link to this view", "with its zoom, worker and what-if", () => this.#copyLink(failed))), failed);
  }

  async #copyLink(says) {
    const link = new URL(this.#address({ epoch: this.body.epoch }), location.href).href;
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(link);
      fill(says, "Copied.");
    } else {
      fill(says, h("a", { href: link }, link));
    }
  }

  #address({ epoch = this.pinned } = {}) {
    const { view } = this.timeline;
    const query = new URLSearchParams();
    if (epoch !== null) query.set("epoch", epoch);
    if (this.mode !== "health") query.set("mode", this.mode);
    if (this.plans[0] || this.plans[1]) {
      query.set("from", Math.round(view.from));
      query.set("to", Math.round(view.to));
      query.set("top", Math.round(view.top));
      query.set("row", Math.round(view.rowHeight));
    }
    if (view.worker !== null) query.set("worker", `${Math.floor(view.worker / this.cluster.num_slots)}/${view.worker % this.cluster.num_slots}`);
    for (const event of this.whatIf.events) query.append("try", toText(event));
    return `#/jobs/${encodeURIComponent(this.id)}?${query}`;
  }

  /** Keeps the address up to date, so that a reload or a bookmark brings this view back. */
  #remember() {
    if (!this.isOpen || this.remembering) return;
    this.remembering = setTimeout(() => {
      this.remembering = null;
      if (this.element.isConnected) history.replaceState(null, "", this.#address());
    }, 300);
  }

  #chooseByName(text) {
    const match = /^(\d+)\/(\d+)$/.exec(text ?? "");
    if (!match || !this.cluster) return;
    const worker = Number(match[1]) * this.cluster.num_slots + Number(match[2]);
    if (worker >= this.cluster.num_pipelines * this.cluster.num_slots) return;
    this.map.choose(worker);
    this.whatIf.choose(worker);
    this.timeline.choose(worker);
  }
}
