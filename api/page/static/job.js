// One job: how it stands and what to do, its map, its plan over time, its history, and what would happen if more failed.

import { ServiceError, getJson, jobPath } from "./api.js";
import { fill, h, name, unfolding } from "./dom.js";
import { ago, duration, sentence } from "./format.js";
import { Downloads } from "./downloads.js";
import { heatList, numUnknown } from "./heat.js";
import { historyTable, ladderTable } from "./history.js";
import { cellsOf, drawHurt, drawLegend, labelOf, movesOf } from "./job_map.js";
import { drawVerdict, titleOf } from "./job_verdict.js";
import { Latest } from "./latest.js";
import { ClusterMap } from "./map.js";
import { Precompute } from "./precompute.js";
import { isOverdue } from "./steps.js";
import { TimelinePanel, loadTimeline } from "./timeline.js";
import { ofEpoch } from "./verdict.js";
import { WhatIfPanel } from "./whatif.js";

const HISTORY = 100;
const LEAST_BETWEEN_MS = 1_000; // between two loadings, however fast epochs come
const RETRY_MS = 4_000;
const REMEMBER_MS = 300;
const LAST_EPOCH = 2 ** 31 - 1;
const IS_TOUCHED = matchMedia("(pointer: coarse)");

/** The view of one job; `query` is what its link says. */
export class JobView {
  constructor(live, id, query) {
    this.live = live;
    this.id = id;
    this.pinned = pinnedBy(query.get("epoch"));
    this.mode = query.get("mode") === "heat" ? "heat" : "health";
    this.query = query;
    this.body = null;
    this.cluster = null;
    this.heat = null;
    this.plans = [null, null];
    this.ended = new AbortController();
    this.loading = new Latest(() => this.#load(), LEAST_BETWEEN_MS, this.ended.signal);
    this.plansLoading = new Latest(() => this.#loadPlans(), LEAST_BETWEEN_MS, this.ended.signal);
    this.map = new ClusterMap();
    this.whatIf = new WhatIfPanel(id, this.map);
    this.timeline = new TimelinePanel((worker, isFaultFree) => this.#nodeAt(worker, isFaultFree));
    this.precompute = new Precompute(id);
    this.downloads = new Downloads(() => ({
      id, epoch: this.body.epoch, hasPlan: this.body.plan !== null, timeline: this.timeline,
      link: new URL(this.#address({ epoch: this.body.epoch }), location.href).href,
    }));
    this.#build();
    this.onChange = (event) => { if (event.detail.includes(this.id) || this.live.damaged.includes(this.id)) this.#follow(); };
    this.onConnection = () => { if (this.live.state === "live") this.whatIf.resume(); };
  }

  get title() {
    return `${this.body && this.cluster ? titleOf(this.#facts()) : ""}${this.id}`;
  }

  open() {
    this.live.addEventListener("change", this.onChange);
    this.live.addEventListener("connection", this.onConnection);
    this.ticking = setInterval(() => this.#tick(), 1000);
    this.loading.run();
  }

  close() {
    this.ended.abort();
    this.live.removeEventListener("change", this.onChange);
    this.live.removeEventListener("connection", this.onConnection);
    clearInterval(this.ticking);
    clearTimeout(this.remembering);
    for (const part of [this.map, this.timeline, this.precompute]) part.close();
  }

  #build() {
    this.trouble = h("p", { class: "problem banner", hidden: true, role: "alert" });
    this.pinnedNote = h("p", { class: "banner", hidden: true });
    this.tryingNote = h("p", { class: "banner trying", hidden: true }, h("strong", {}, "WHAT-IF: nothing of this has happened"), ". The plan at the top and the timeline are the live ones.");
    this.verdict = h("section", { class: "card verdict", "aria-label": "how it stands" }, h("p", { class: "note" }, "Asking the service…"));
    this.heatText = h("div", { class: "heat", hidden: true });
    this.hurt = h("ul", { class: "hurt-list", hidden: true, "aria-label": "workers that are down or slow" });
    this.mapLegend = h("ul", { class: "legend" });
    const radio = (value, text) => h("label", {}, h("input", { type: "radio", name: "mode", value, checked: this.mode === value, onchange: () => this.#setMode(value) }), ` ${text}`);
    this.mapCard = h("section", { class: "card map-card", "aria-label": "map" }, h("h2", {}, "Map"),
      h("div", { class: "toolbar" }, radio("health", "what is down, and load"), radio("heat", "which node hurts most"), this.#finder()),
      this.hurt, this.map.element, this.mapLegend, this.heatText, this.precompute.element);
    this.columns = h("div", { class: "columns" }, this.mapCard, this.whatIf.element);
    this.ladder = h("section", { class: "card", "aria-label": "answers" });
    this.history = h("section", { class: "card", "aria-label": "history" });
    this.timelineNote = h("p", { class: "note", role: "status" });
    this.element = h("div", {},
      h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Jobs"), " / ", name(this.id)), h("h1", {}, name(this.id)),
      this.trouble, this.pinnedNote, this.verdict, this.tryingNote, this.columns,
      unfolding("timeline", h("h2", {}, "Timeline"), this.timelineNote, this.timeline.element),
      this.ladder, this.history, this.downloads.element);
    this.map.addEventListener("choose", (event) => {
      this.whatIf.choose(event.detail);
      this.timeline.choose(this.#positionOf(event.detail));
    });
    this.whatIf.addEventListener("tried", (event) => {
      this.tryingNote.hidden = this.whatIf.texts.length === 0;
      this.timeline.mark(this.whatIf.texts.length > 0);
      this.#drawMap();
      this.#remember();
      // What was searched for is ready from now on, and so is known to the heat map.
      if (event.detail?.would_be.source === "solved") this.#loadHeat();
    });
    this.precompute.addEventListener("ready", () => this.#loadHeat());
    this.timeline.addEventListener("changed", () => this.#remember());
  }

  #finder() {
    const input = h("input", { type: "search", id: "find", size: 16, placeholder: "node, rack or 1/2" });
    const outcome = h("span", { class: "problem", role: "status" });
    const find = (event) => {
      event.preventDefault();
      const worker = this.cluster ? this.map.find(input.value.trim()) : null;
      fill(outcome, worker === null ? "nobody of that name" : "");
      if (worker !== null) this.map.pick(worker);
    };
    return h("form", { class: "pair", role: "search", onsubmit: find }, h("label", { for: "find" }, "Find"), input, h("button", { type: "submit" }, "Choose"), outcome);
  }

  #tick() {
    for (const element of this.verdict.querySelectorAll("[data-at]")) element.textContent = ago(element.dataset.at, this.live.now());
    if (this.body && this.cluster && String(isOverdue(this.#facts(), this.live.now())) !== this.verdict.dataset.overdue) this.#drawVerdict();
    const isDue = this.failedAt !== undefined && performance.now() - this.failedAt > RETRY_MS;
    if (isDue && this.live.state === "live") this.loading.run();
  }

  /** Another epoch has come, or the job is gone or back. */
  #follow() {
    const row = this.live.jobs.get(this.id);
    if (!row) {
      if (this.live.damaged.includes(this.id)) this.#fail("What the service has stored of this job is damaged. What you see is how it last stood; the service's log tells more.");
      else if (this.live.version !== null && this.body) {
        this.isGone = true;
        this.#fail("This job was deleted. What you see is how it last stood.");
      }
      return;
    }
    if (this.body === null) {
      // What is being loaded is the newest, and what cannot be there is not asked for again.
      if (!this.loading.isRunning && !this.isMissing) this.loading.run();
    } else if (this.pinned !== null) {
      this.#showPinned();
      this.#drawVerdict();
    } else if (this.#isBehind()) this.loading.run();
    else this.#drawVerdict();
  }

  /** Whether the service has told of another epoch than the one that is shown. */
  #isBehind() {
    const row = this.live.jobs.get(this.id);
    return row !== undefined && (this.isGone || row.epoch !== this.body.epoch || row.created_at !== this.body.created_at);
  }

  #fail(text) {
    this.trouble.hidden = text === null;
    fill(this.trouble, text ?? "");
  }

  /** Loads what is newest: first what is said of it, and, apart from that, what takes longer to draw. */
  async #load() {
    this.failedAt = undefined;
    const isFirst = this.body === null;
    try {
      const body = await this.#get(this.pinned === null ? "epochs/current" : `epochs/${this.pinned}`);
      this.cluster = await this.#get(`cluster?epoch=${body.epoch}`);
      this.body = body;
      this.moves = movesOf(body, this.cluster.num_slots);
      this.standing = new Map([...this.moves].map(([worker, position]) => [position, worker]));
    } catch (error) {
      this.isMissing = this.pinned !== null && error.status === 404;
      this.#tell(error);
      this.#showPinned();
      return;
    }
    this.isGone = false;
    this.#fail(null);
    this.map.take(this.cluster);
    this.#drawVerdict();
    this.#showPinned();
    fill(this.ladder, h("h2", {}, "Answers and what they would cost"), ladderTable(this.body));
    this.precompute.show(this.cluster.num_slots, this.body.failed_workers.length, Object.keys(this.body.failures.degraded).length);
    this.#drawMap();
    this.downloads.refresh();
    this.plansLoading.run();
    this.whatIf.follow(this.body);
    if (isFirst) this.#restore();
    const parts = [this.#loadHistory(), this.#loadHeat(), this.precompute.look()];
    for (const part of await Promise.allSettled(parts)) if (part.status === "rejected") this.#tell(part.reason);
    if (this.pinned === null && this.live.state === "live" && this.#isBehind()) this.loading.run();
  }

  #get(what) {
    return getJson(jobPath(this.id, what), { signal: this.ended.signal });
  }

  /** Says what could not be loaded; what may go well later is tried again. */
  #tell(error) {
    if (error.name === "AbortError" || this.ended.signal.aborted) return;
    if (!(error instanceof ServiceError)) throw error;
    if (error.isPassing) this.failedAt = performance.now();
    const text = error.status === 404 && !this.body ? "There is no such job, or no such epoch of it." : error.message;
    this.#fail(`${sentence(text)}${error.isPassing ? " It is asked for again." : ""}`);
  }

  /** Draws each of the two plans as soon as it is there: one may have to be made anew. */
  async #loadPlans() {
    const { body } = this;
    const { signal } = this.ended;
    fill(this.timelineNote, "Drawing the plan… A large one takes a while.");
    const hadAny = this.plans.some((plan) => plan !== null);
    const fresh = hadAny ? [...this.plans] : [null, null];
    const show = (n) => async (faultFree) => {
      fresh[n] = body.plan || faultFree ? await loadTimeline(this.id, body.epoch, faultFree, signal) : null;
      if (!signal.aborted && fresh[n]) this.#showPlans(fresh);
    };
    const found = await Promise.allSettled([show(0)(false), show(1)(true)]);
    if (signal.aborted) return;
    found.forEach((result, n) => { if (result.status === "rejected") fresh[n] = null; });
    this.#showPlans(fresh);
    if (!hadAny) this.#restoreZoom();
    const reasons = found.filter((result) => result.status === "rejected").map((result) => result.reason);
    fill(this.timelineNote, [...this.#notes(), ...reasons.map((reason) => sentence(reason.message))].join(" "));
    const passing = reasons.find((reason) => reason.isPassing);
    if (passing) this.#tell(passing);
  }

  #showPlans(plans) {
    const keep = this.plans.some((plan) => plan !== null);
    this.plans = [...plans];
    this.timeline.show(this.plans[0], this.plans[1], keep);
    this.#drawMap();
  }

  #notes() {
    const [inForce, faultFree] = this.plans;
    const notes = [];
    if (!this.body.plan) notes.push("There is no plan for these failures; the chart shows the plan with everybody live.");
    else if (inForce) notes.push(`${this.timeline.summaryOf(inForce)}. A row is a worker and its machine, time runs to the right. ${IS_TOUCHED.matches ? "Two fingers zoom, one moves." : "Wheel with Ctrl, or + and −, to zoom; drag to move."}`);
    if (inForce && faultFree && faultFree.head.period_ns < inForce.head.fault_free_ns) {
      notes.push(`A better fault-free plan was found since this one was made; shares of the throughput count from the older one, ${duration(inForce.head.fault_free_ns)}.`);
    }
    return notes;
  }

  async #loadHistory() {
    const newest = Math.max(this.live.jobs.get(this.id)?.epoch ?? 0, this.body.epoch);
    const bodies = await this.#get(`epochs?after=${Math.max(0, newest - HISTORY)}`);
    fill(this.history, h("h2", {}, "History"), h("div", { class: "scroll" }, historyTable(bodies, this.body.epoch, (epoch) => this.#address({ epoch }))),
      bodies.length >= HISTORY ? h("p", { class: "note" }, `The newest ${HISTORY} epochs.`) : null);
  }

  async #loadHeat() {
    try {
      this.heat = await this.#get("heat");
    } catch (error) {
      this.#tell(error);
      return;
    }
    this.#drawVerdict();
    this.#drawMap();
  }

  /** The heat map where it is of the epoch that is shown. */
  get #fittingHeat() {
    return this.heat !== null && this.heat.epoch === this.body.epoch && this.heat.node_groups.length === this.cluster.nodes.length ? this.heat : null;
  }

  #setMode(mode) {
    this.mode = mode;
    this.#drawMap();
    this.#remember();
  }

  #showPinned() {
    this.pinnedNote.hidden = this.pinned === null;
    if (this.pinned === null) return;
    const newest = this.live.jobs.get(this.id)?.epoch ?? this.pinned;
    const says = this.isMissing
      ? "The link names an epoch that is not there: it never was, or is not kept any more. "
      : newest === this.pinned
        ? `This is epoch ${this.pinned}, the current one; this view stays with it. `
        : `This is epoch ${this.pinned}, not what runs now: the job is at epoch ${newest}. `;
    fill(this.pinnedNote, says, h("a", { href: `#/jobs/${encodeURIComponent(this.id)}` }, "Follow the current epoch"));
  }

  #facts() {
    const row = this.live.jobs.get(this.id);
    if (row && row.epoch === this.body.epoch && row.created_at === this.body.created_at) return row;
    return { ...ofEpoch(this.body, this.cluster.num_pipelines * this.cluster.num_slots), epoch: this.body.epoch };
  }

  #drawVerdict() {
    if (!this.body || !this.cluster) return;
    drawVerdict(this.verdict, { facts: this.#facts(), body: this.body, cluster: this.cluster, heat: this.#fittingHeat, now: this.live.now(), onBack: this.pinned === null ? (node) => this.whatIf.declareBack(node) : null });
  }

  /** Position in the plan where a worker stands, as an index. */
  #positionOf(worker) {
    return this.moves.get(worker) ?? worker;
  }

  /** Name of the machine that stands at a position. */
  #nodeAt(position, isFaultFree) {
    if (!this.cluster || position >= this.cluster.worker_nodes.length) return "";
    if (isFaultFree || !this.body.moved.length) return this.map.shortName(position);
    const who = this.standing.get(position) ?? (this.moves.has(position) ? null : position);
    return who === null ? "nobody" : this.map.shortName(who);
  }

  #drawMap() {
    if (!this.cluster || !this.body) return;
    const heat = this.#fittingHeat;
    const { answer } = this.whatIf;
    this.columns.classList.toggle("wide", this.cluster.num_pipelines > 48);
    const cells = cellsOf({ body: this.body, moves: this.moves, cluster: this.cluster, plan: this.plans[0], heat, answer });
    this.map.show(this.cluster, cells, this.mode);
    this.whatIf.describe();
    drawHurt(this.hurt, this.map);
    drawLegend(this.mapLegend, { cells, mode: this.mode, body: this.body, answer });
    this.heatText.hidden = this.mode !== "heat";
    if (!this.heatText.hidden) {
      if (heat) heatList(this.heatText, heat, this.cluster);
      else fill(this.heatText, h("p", { class: "note" }, this.pinned === null ? "Not known yet." : "Known of the current epoch alone."));
    }
    this.precompute.element.hidden = this.pinned !== null || !(this.mode === "heat" || (heat && numUnknown(heat)));
  }

  #restore() {
    this.#chooseByName(this.query.get("worker"));
    this.whatIf.restore(this.query.getAll("try"));
    this.isOpen = true;
  }

  #restoreZoom() {
    const number = (key) => (this.query.has(key) ? Number(this.query.get(key)) : Number.NaN);
    this.timeline.restore({ from: number("from"), to: number("to"), top: number("top"), row: number("row") });
  }

  #address({ epoch = this.pinned } = {}) {
    const { view } = this.timeline;
    const query = new URLSearchParams();
    if (epoch !== null) query.set("epoch", epoch);
    if (this.mode !== "health") query.set("mode", this.mode);
    if (this.plans[0] || this.plans[1]) {
      for (const [key, value] of [["from", view.from], ["to", view.to], ["top", view.top], ["row", view.rowHeight]]) query.set(key, Math.round(value));
    }
    if (view.worker !== null) query.set("worker", labelOf(view.worker, this.cluster.num_slots));
    for (const text of this.whatIf.texts) query.append("try", text);
    return `#/jobs/${encodeURIComponent(this.id)}?${query}`;
  }

  /** Keeps the address up to date, so that a reload or a bookmark brings this view back. */
  #remember() {
    if (!this.isOpen || this.remembering) return;
    this.remembering = setTimeout(() => {
      this.remembering = null;
      if (this.element.isConnected) history.replaceState(null, "", this.#address());
    }, REMEMBER_MS);
  }

  #chooseByName(text) {
    const worker = /^\d+\/\d+$/.test(text ?? "") ? this.map.find(text) : null;
    if (worker === null) return;
    this.map.choose(worker);
    this.whatIf.choose(worker);
    this.timeline.choose(worker);
  }
}

/** Epoch that a link names; null where it names none that can be. */
function pinnedBy(text) {
  const epoch = /^\d{1,10}$/.test(text ?? "") ? Number(text) : 0;
  return epoch >= 1 && epoch <= LAST_EPOCH ? epoch : null;
}
