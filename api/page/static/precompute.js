// Has plans made ready for failures to come: a step of its own, that is confirmed, watched and can be stopped.

import { getJson, jobPath, postJson } from "./api.js";
import { fill, h, name, openDialog } from "./dom.js";
import { count, seconds, sentence } from "./format.js";

const EACH_MS = 1_000;
const MOST_TOLERANCE = 1024;
const MANY = 1_000;

/** Number of ways to lose up to so many workers, by slot. */
export function numPlans(slots, tolerance) {
  let ways = 1;
  for (let n = 1; n <= tolerance; n += 1) ways = (ways * (slots + n)) / n;
  return Math.round(ways);
}

/** A button and how far it is; fires `ready` once plans were made. */
export class Precompute extends EventTarget {
  constructor(jobId) {
    super();
    this.jobId = jobId;
    this.isClosed = false;
    this.button = h("button", { type: "button", onclick: () => this.#ask() }, "Make plans ready…");
    this.state = h("p", { class: "note", role: "status" });
    this.stop = h("button", { type: "button", class: "small", hidden: true }, "Stop");
    this.element = h("div", { class: "precompute" }, h("div", { class: "actions" }, this.button, this.stop), this.state);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  /** Of which cluster it is, how many workers are down by now, and how many targets are slow. */
  show(slots, numFailed, numSlow) {
    Object.assign(this, { slots, numFailed, numSlow });
  }

  /** Looks whether plans are being made already. */
  async look() {
    const { operations } = await getJson(`${jobPath(this.jobId, "operations")}?limit=1`);
    const [newest] = operations;
    if (newest && ["queued", "running"].includes(newest.state) && !this.watched) this.#watch(newest);
  }

  #ask() {
    const tolerance = h("input", { type: "number", id: "tolerance", min: 1, max: MOST_TOLERANCE, value: this.numFailed + 1, required: true });
    const cost = h("p", { class: "note" });
    const outcome = h("p", { class: "problem", role: "alert" });
    const estimate = () => {
      const number = numPlans(this.slots, Number(tolerance.value) || 0);
      const slow = this.numSlow ? " Plans for workers that are slow are not among them." : "";
      fill(cost, `Up to ${Number.isFinite(number) ? count(number, "plan") : "more plans than can be counted"}, about a second each, those that are there not counted. Reports of failures go before them.`,
        number > MANY ? " That is many: fewer workers need far fewer plans." : "", slow);
    };
    tolerance.addEventListener("input", estimate);
    estimate();
    const form = h("form", { onsubmit: async (event) => {
      event.preventDefault();
      fill(outcome);
      try {
        this.#watch(await postJson(jobPath(this.jobId, "precompute"), { tolerance: Number(tolerance.value), mode: "all" }));
        dialog.close();
      } catch (error) {
        fill(outcome, sentence(refusal(error)));
      }
    } }, h("label", { for: "tolerance" }, "Workers that may be down together, those that are now included"), tolerance,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { type: "submit" }, "Make them ready")));
    const dialog = openDialog("Make plans ready?",
      h("p", {}, "The service works out plans for the failures that job ", name(this.jobId), " may have next, and keeps them. The job itself goes on as it is."), form, cost, outcome);
  }

  #watch(operation) {
    this.watched = operation;
    const isOver = !["queued", "running"].includes(operation.state);
    this.button.disabled = !isOver;
    this.stop.hidden = isOver;
    this.stop.onclick = () => this.#cancel(operation.id);
    fill(this.state, progress(operation));
    if (isOver) {
      this.watched = null;
      this.dispatchEvent(new Event("ready"));
    } else if (!this.isClosed) {
      this.timer = setTimeout(() => this.#again(operation), EACH_MS);
    }
  }

  async #again(operation) {
    try {
      this.#watch(await getJson(`/v1/operations/${encodeURIComponent(operation.id)}`));
    } catch (error) {
      if (error.isPassing) {
        if (!this.isClosed) this.timer = setTimeout(() => this.#again(operation), EACH_MS);
      } else {
        this.watched = null;
        this.button.disabled = false;
        this.stop.hidden = true;
        fill(this.state, sentence(error.message));
      }
    }
  }

  async #cancel(id) {
    try {
      await postJson(`/v1/operations/${encodeURIComponent(id)}/cancel`, {});
    } catch (error) {
      fill(this.state, sentence(refusal(error)));
    }
  }
}

function progress(operation) {
  const made = `${operation.done} made, ${operation.skipped} were there, ${operation.failed} cannot be made`;
  if (operation.state === "queued") return "Plans are about to be made.";
  if (operation.state === "running") {
    const part = operation.total === null ? made : `${operation.done + operation.skipped + operation.failed} of ${operation.total} (${made})`;
    const left = operation.remaining_s === null ? "" : `; about ${seconds(Math.ceil(operation.remaining_s))} left`;
    return `Making plans ready: ${part}${left}.`;
  }
  if (operation.state === "failed") return sentence(`Making plans ready failed: ${operation.error}`);
  return `${operation.state === "done" ? "Plans are ready" : "Stopped"}: ${made}.`;
}

function refusal(error) {
  if (error.code === "scope_too_small") return "this key may not have plans made; ask for one with the scope admin, or run replan precompute on the service's store";
  return error.message;
}
