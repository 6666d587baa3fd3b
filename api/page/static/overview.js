// All jobs at a glance, what is worst first.

import { fill, figure, h, name } from "./dom.js";
import { ago, clock, count, microseconds, percent, some } from "./format.js";
import { lastReport } from "./job_verdict.js";
import { isOverdue, stepList, whatToDo } from "./steps.js";
import { EDGE, bestPossible, isLastStand, severity, stateOf, whatFailed, whatIsNext, whatItCosts } from "./verdict.js";
import { WORDS } from "./words.js";

const ORDER = ["stopped", "untaken", "hurt", "waiting", "well"];
const SUMMARY = { stopped: "without a plan", untaken: "whose plan is not taken yet", hurt: "rerouted around failures", waiting: "with nothing down, plan not taken yet", well: "with nothing down" };
const [MOST_CARDS, FEW] = [100, 12];
const EVENTS = ["change", "connection"];

/** The view of all jobs. */
export class OverviewView {
  constructor(live) {
    this.live = live;
    this.cards = h("div", { class: "cards" });
    this.summary = h("p", { class: "summary", role: "status" });
    this.damaged = h("p", { class: "banner problem", hidden: true });
    this.wanted = h("input", { type: "search", id: "wanted", oninput: () => this.draw() });
    this.search = h("p", { class: "toolbar", hidden: true }, h("label", { for: "wanted" }, "Only jobs whose name has "), this.wanted);
    this.rest = h("p", { class: "note" });
    this.element = h("div", {}, h("h1", {}, "Jobs"), this.damaged, this.summary, this.search, this.cards, this.rest);
    this.known = new Map();
    this.draw = this.draw.bind(this);
  }

  /** What the title of the tab says. */
  get title() {
    const jobs = [...this.live.jobs.values()];
    const stopped = jobs.filter((job) => !job.has_plan).length;
    return stopped ? `✕ ${stopped} without a plan` : "Jobs";
  }

  open() {
    for (const event of EVENTS) this.live.addEventListener(event, this.draw);
    this.ticking = setInterval(() => this.#tick(), 1000);
    this.draw();
  }

  close() {
    for (const event of EVENTS) this.live.removeEventListener(event, this.draw);
    clearInterval(this.ticking);
  }

  draw() {
    this.damaged.hidden = !this.live.damaged.length;
    if (!this.damaged.hidden) fill(this.damaged, "Stored rows of these jobs are damaged, so nothing is shown of them; the service's log tells more: ", name(some(this.live.damaged, 8)));
    const jobs = [...this.live.jobs.values()];
    this.search.hidden = jobs.length <= FEW;
    if (!jobs.length) {
      const isAsking = this.live.state === "connecting";
      fill(this.summary, isAsking ? "Asking the service…" : "");
      fill(this.cards, isAsking ? null : this.#none());
      fill(this.rest);
      return;
    }
    const tags = ORDER.map((kind) => [kind, jobs.filter((job) => severity(job) === kind).length]).filter(([, number]) => number)
      .map(([kind, number]) => h("span", { class: `tag ${kind}` }, `${number} ${SUMMARY[kind]}`));
    const edge = jobs.filter(isLastStand).length;
    if (edge) tags.push(h("span", { class: "tag stopped" }, `⚠ ${edge} that one more failure may stop`));
    if (this.summary.textContent !== tags.map((tag) => tag.textContent).join("")) fill(this.summary, tags);
    const text = this.search.hidden ? "" : this.wanted.value.trim().toLowerCase();
    const found = jobs.filter((job) => job.id.toLowerCase().includes(text) || job.name.toLowerCase().includes(text)).sort(worstFirst);
    fill(this.cards, found.slice(0, MOST_CARDS).map((job) => this.#card(job)));
    fill(this.rest, found.length > MOST_CARDS ? `${count(found.length - MOST_CARDS, "job")} more, none of them worse off than those above.` : found.length ? "" : "No job has that in its name.");
    this.known = new Map([...this.known].filter(([id]) => this.live.jobs.has(id)));
  }

  /** What is said where no job is known. */
  #none() {
    if (this.live.state !== "live" && this.live.state !== "paused") {
      return h("div", { class: "card" }, h("h2", {}, "The list of jobs is not known"), h("p", {}, "It appears here once the service answers."));
    }
    return h("div", { class: "card" }, h("h2", {}, "No job is registered"),
      h("p", {}, "Register one with ", h("code", {}, "replan jobs register"), "; it appears here by itself."));
  }

  #tick() {
    const now = this.live.now();
    if ([...this.known.values()].some(({ job, overdue }) => isOverdue(job, now) !== overdue)) this.draw();
    for (const element of this.cards.querySelectorAll("[data-at]")) element.textContent = ago(element.dataset.at, this.live.now());
  }

  /** The same element for as long as nothing of the job changes. */
  #card(job) {
    const known = this.known.get(job.id);
    const overdue = isOverdue(job, this.live.now());
    if (known?.job === job && known.overdue === overdue) return known.element;
    const element = this.#made(job);
    this.known.set(job.id, { job, overdue, element });
    return element;
  }

  #made(job) {
    const isEdge = isLastStand(job);
    const missing = job.num_live - job.num_acknowledged;
    const down = job.down.length <= 3 ? job.down.join(", ") : job.failed_nodes;
    const lines = [
      h("p", {}, h("strong", {}, "What failed: "), whatFailed(job), down ? [" Down: ", name(down)] : null),
      h("p", {}, h("strong", {}, "What it costs: "), whatItCosts(job)),
      h("div", { class: "steps" }, h("strong", {}, "What to do: "), stepList(whatToDo(job, this.live.now()))),
      h("p", { class: isEdge ? "problem" : null }, h("strong", {}, "If one more fails: "), whatIsNext(job)),
    ];
    return h("article", { class: `card job ${severity(job)}${isEdge ? " edge" : ""}` },
      h("h2", {}, h("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, name(job.id)), job.name === job.id ? null : [" ", h("small", {}, name(job.name))]),
      h("p", { class: "state" }, stateOf(job), isEdge ? [" ", h("span", { class: "edge-note" }, EDGE)] : null,
        h("span", { class: "since" }, job.has_plan ? " plan made " : " since: ", h("span", { "data-at": job.created_at, title: clock(job.created_at) }, ago(job.created_at, this.live.now())))), lines,
      h("dl", { class: "figures" },
        figure("Plan number (epoch)", String(job.epoch), null, WORDS.epoch),
        figure("Throughput", job.has_plan ? percent(job.throughput_kept) : "none", job.has_plan ? (missing ? "once the plan is taken" : "of the fault-free plan") : null, WORDS["throughput kept"]),
        !job.has_plan ? null : figure("Iteration time", microseconds(job.period_us), bestPossible(job), WORDS["iteration time (period)"]),
        figure("Last report", lastReport(job.last_event_at, this.live.now())),
        !job.has_plan ? null : figure("Plan taken by", `${job.num_acknowledged} of ${count(job.num_live, "worker")}`, missing ? `not by ${some(job.missing, 4, missing)}` : "everybody has it", WORDS.acknowledged)));
  }
}

function worstFirst(a, b) {
  return ORDER.indexOf(severity(a)) - ORDER.indexOf(severity(b)) || isLastStand(b) - isLastStand(a) || (a.throughput_kept ?? 0) - (b.throughput_kept ?? 0) || (a.id < b.id ? -1 : 1);
}
