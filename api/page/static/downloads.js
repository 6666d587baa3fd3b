// Files of what is shown, where one looks for them, and a link that brings the view back.

import { download, jobPath, save } from "./api.js";
import { fill, h } from "./dom.js";
import { sentence } from "./format.js";
import { svgOf } from "./svg.js";

const WORKER = /^(\d+\/\d+|rank:\d+)$/;

/** The downloads of a view; `shown()` gives {id, epoch, hasPlan, timeline, link}. */
export class Downloads {
  constructor(shown) {
    this.shown = shown;
    this.outcome = h("p", { role: "status" });
    this.worker = h("input", { type: "text", id: "program-of", size: 8, value: "0/0", "aria-label": "worker, pipeline/slot or rank:17" });
    const epochPath = (...parts) => jobPath(shown().id, "epochs", shown().epoch, ...parts);
    const stem = () => `${shown().id}-epoch-${shown().epoch}`;
    this.element = h("section", { class: "card", "aria-label": "downloads" }, h("h2", {}, "Downloads and link"), h("ul", { class: "downloads" },
      this.#entry("Plan file", "for replan validate, replay and show", () => download(epochPath("plan"), `${stem()}-plan.json`)),
      this.#entry("Chrome trace", "for Perfetto (open its page ui.perfetto.dev, then this file) or chrome://tracing", () => download(epochPath("trace"), `${stem()}-trace.json`)),
      this.#entry("SVG", "of the timeline as it is shown", () => this.#saveSvg(`${stem()}.svg`)),
      this.#entry("Program of worker", this.worker, () => this.#saveProgram(epochPath, stem())),
      this.#entry("Copy a link to this view", "with its epoch, zoom, worker and what-if", () => this.#copyLink())), this.outcome);
  }

  /** Without a plan there is nothing to save of it. */
  refresh() {
    const { hasPlan } = this.shown();
    for (const button of this.element.querySelectorAll("[data-plan]")) button.disabled = !hasPlan;
  }

  #entry(text, note, action) {
    const ofPlan = ["Plan file", "Chrome trace", "Program of worker"].includes(text);
    return h("li", {}, h("button", { type: "button", "data-plan": ofPlan, onclick: () => this.#run(action) }, text), " ", note);
  }

  async #run(action) {
    this.#say("");
    try {
      await action();
    } catch (error) {
      this.#say(sentence(error.message), "problem");
    }
  }

  #say(what, className = "note") {
    this.outcome.className = className;
    fill(this.outcome, what);
  }

  #saveSvg(filename) {
    const { text, isCut } = svgOf(this.shown().timeline);
    save(new Blob([text], { type: "image/svg+xml" }), filename);
    if (isCut) this.#say("More bars are shown than an SVG can hold; the file has the first of them. Zoom in, or take the trace.");
  }

  async #saveProgram(epochPath, stem) {
    const worker = this.worker.value.trim();
    if (!WORKER.test(worker)) throw new Error("a worker is named as pipeline/slot, such as 1/2, or by a rank, such as rank:17");
    await download(epochPath("programs", worker.split("/").map(encodeURIComponent).join("/")), `${stem}-program-${worker}.json`);
  }

  async #copyLink() {
    const { link } = this.shown();
    try {
      await navigator.clipboard.writeText(link);
      this.#say("Copied.");
    } catch {
      // Browsers lend the clipboard to secure origins alone: then it is copied by hand.
      this.#say(h("a", { href: link }, link));
    }
  }
}
