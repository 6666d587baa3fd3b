// All jobs at a glance, what is worst first.

import { fill, figure, h, name } from "./dom.js";
import { ago, count, microseconds, percent, some } from "./format.js";
import { SEVERITIES, bestPossible, severity, whatFailed, whatItCosts, whatToDo } from "./verdict.js";

const ORDER = ["stopped", "hurt", "waiting", "well"];

/** The view of all jobs. */
export class OverviewView {
  constructor(live) {
    this.live = live;
    this.cards = h("div", { class: "cards" });
    this.summary = h("p", { class: "summary", role: "status" });
    this.damaged = h("p", { class: "banner problem", hidden: true });
    this.element = h("div", {}, h("h1", {}, "Jobs"), this.damaged, this.summary, this.cards);
    this.draw = this.draw.bind(this);
  }

  open() {
    this.live.addEventListener("change", this.draw);
    this.ticking = setInterval(() => this.#tick(), 1000);
    this.draw();
    document.title = "Jobs · RePlan";
  }

  close() {
    this.live.removeEventListener("change", this.draw);
    clearInterval(this.ticking);
  }

  draw() {
    this.damaged.hidden = !this.live.damaged.length;
    if (!this.damaged.hidden) fill(this.damaged, "Stored rows of these jobs are damaged, so nothing is shown of them; the service's log tells more: ", name(some(this.live.damaged, 8)));
    const jobs = [...this.live.jobs.values()];
    if (!jobs.length) {
      fill(this.summary, this.live.version === null ? "Asking the service…" : "");
      fill(this.cards, this.live.version === null ? null : h("div", { class: "card" }, h("h2", {}, "No job is registered"), h("p", { class: "advice" }, "Register one with ", h("code", {}, "replan jobs register"), "; it appears here by itself.")));
      return;
    }
    const counts = ORDER.map((kind) => [kind, jobs.filter((job) => severity(job) === kind).length]);
    const words = { stopped: "without a plan", hurt: "rerouted around failures", waiting: "waiting for acknowledgements", well: "well" };
    fill(this.summary, counts.filter(([, number]) => number).map(([kind, number]) => h("span", { class: `tag ${kind}` }, `${number} ${words[kind]}`)));
    jobs.sort((a, b) => ORDER.indexOf(severity(a)) - ORDER.indexOf(severity(b)) || (a.throughput_kept ?? 0) - (b.throughput_kept ?? 0) || (a.id < b.id ? -1 : 1));
    fill(this.cards, jobs.map((job) => this.#card(job)));
  }

  #tick() {
    for (const element of this.cards.querySelectorAll("[data-at]")) element.textContent = ago(element.dataset.at, this.live.now());
  }

  #card(job) {
    const kind = severity(job);
    const missing = job.num_live - job.num_acknowledged;
    return h("article", { class: `card job ${kind}` },
      h("h2", {}, h("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, name(job.id)), job.name === job.id ? null : [" ", h("small", {}, name(job.name))]),
      h("p", { class: "state" }, SEVERITIES[kind]),
      h("p", {}, h("strong", {}, "What failed: "), whatFailed(job), job.failed_nodes ? [" Down: ", name(job.failed_nodes)] : null),
      h("p", {}, h("strong", {}, "What it costs: "), whatItCosts(job)),
      h("p", {}, h("strong", {}, "What to do: "), whatToDo(job)),
      h("dl", { class: "figures" },
        figure("Epoch", String(job.epoch)),
        figure("Throughput", job.has_plan ? percent(job.throughput_kept) : "none", job.has_plan ? "of the fault-free plan" : null),
        !job.has_plan ? null : figure("Period", microseconds(job.period_us), bestPossible(job)),
        figure("Last event", h("span", job.last_event_at ? { "data-at": job.last_event_at } : {}, ago(job.last_event_at, this.live.now()))),
        !job.has_plan ? null : figure("Plan taken by", `${job.num_acknowledged} of ${count(job.num_live, "worker")}`, missing ? `not by ${some(job.missing, 4)}${missing > job.missing.length ? " …" : ""}` : "everybody has it")));
  }
}
