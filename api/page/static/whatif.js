// What if: choose what to try, see what would be served, and, as a step of its own, report it for real.

import { announce, figure, fill, h, name, openDialog } from "./dom.js";
import { bytes, count, microseconds, percent, seconds } from "./format.js";
import { eventOf, report, reportOf, words, workOut } from "./trial.js";
import { RUNGS, bestPossible, capital, ofEpoch } from "./verdict.js";

/** The panel beside the map; fires `tried` with the answer, or null where nothing is tried. */
export class WhatIfPanel extends EventTarget {
  constructor(jobId, map) {
    super();
    this.jobId = jobId;
    this.map = map;
    this.events = [];
    this.body = null;
    this.answer = null;
    this.round = 0;
    this.choice = h("div", { class: "choice" });
    this.list = h("ul", { class: "trial" });
    this.result = h("div", { class: "result", role: "status" });
    this.element = h("section", { class: "card what-if", "aria-label": "what if" },
      h("h2", {}, "What if…"), this.choice, this.list, this.result);
    this.choose(null);
  }

  /** Tries on another epoch; what is being tried is worked out anew. */
  async follow(body) {
    const moved = this.body !== null && body !== null && this.body.epoch !== body.epoch && this.events.length > 0;
    this.body = body;
    if (this.events.length) await this.#work(moved ? `The job moved on to epoch ${body.epoch} meanwhile; this is worked out for that.` : "");
  }

  /** Takes what a link says. */
  restore(events) {
    this.events = events;
    if (events.length && this.body) this.#work();
  }

  /** Offers what can be tried with a worker. */
  choose(worker) {
    this.worker = worker;
    if (worker === null || !this.map.cluster) {
      fill(this.choice, h("p", { class: "note" }, "Choose a worker on the map, then try what would happen if its node, rack or the worker alone failed. Nothing is reported."));
      return;
    }
    const { num_slots: slots } = this.map.cluster;
    const label = `${Math.floor(worker / slots)}/${worker % slots}`;
    const options = [
      ...this.map.nodesOf(worker).slice(0, 32).map((node) => ({ text: `node ${node}`, what: "node", targets: [node] })),
      ...this.map.racksOf(worker).map((rack) => ({ text: `rack ${rack}`, what: "node", targets: this.#nodesOfRack(rack) })),
      { text: `worker ${label} alone`, what: "worker", targets: [label] },
    ].map((option) => ({ ...option, text: option.targets.length > 1 ? `${option.text}: ${count(option.targets.length, "node")}` : option.text }));
    const select = h("select", { "aria-label": "what to try it with", id: "target" }, options.map((option, n) => h("option", { value: n }, option.text)));
    const speed = h("input", { type: "number", min: 1, max: 99, value: 50, id: "speed", "aria-label": "speed that is left, percent" });
    const add = (kind) => () => {
      const option = options[Number(select.value)];
      const left = Math.min(99, Math.max(1, Number(speed.value) || 50)) / 100;
      this.add(eventOf(kind, option.what, option.targets, kind === "node_degraded" ? left : null));
    };
    fill(this.choice,
      h("p", {}, name(this.map.words(worker).join(" · "))),
      h("div", { class: "actions" }, h("label", { for: "target" }, "Try with "), select),
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: add("node_failed") }, "Fail"),
        h("button", { type: "button", onclick: add("node_recovered") }, "Restore"),
        h("span", { class: "pair" }, h("button", { type: "button", onclick: add("node_degraded") }, "Slow to"), speed, " %")));
  }

  add(event) {
    this.events.push(event);
    this.#work();
  }

  clear() {
    this.events = [];
    this.#work();
  }

  #nodesOfRack(rack) {
    const { racks, rack_of_node: rackOf, nodes } = this.map.cluster;
    const index = racks.indexOf(rack);
    return nodes.filter((_, n) => rackOf[n] === index);
  }

  async #work(note = "") {
    this.round += 1;
    const round = this.round;
    fill(this.list, this.events.map((event, n) => h("li", {}, name(capital(words(event))),
      h("button", { type: "button", class: "small", "aria-label": `do not ${words(event)}`, onclick: () => { this.events.splice(n, 1); this.#work(); } }, "✕"))));
    if (!this.events.length) {
      this.answer = null;
      fill(this.result);
      this.dispatchEvent(new CustomEvent("tried", { detail: null }));
      return;
    }
    fill(this.result, h("p", { class: "note" }, "Working it out… A plan that is not ready is searched for."));
    try {
      const answer = await workOut(this.jobId, this.events, this.body?.epoch ?? null);
      if (round !== this.round) return;
      this.answer = answer;
      this.#show(answer, note);
      this.dispatchEvent(new CustomEvent("tried", { detail: answer }));
    } catch (error) {
      if (round !== this.round) return;
      this.answer = null;
      fill(this.result, h("p", { class: "problem" }, capital(error.message)), this.#clearButton());
      this.dispatchEvent(new CustomEvent("tried", { detail: null }));
    }
  }

  #show(answer, note) {
    const would = answer.would_be;
    const { cluster } = this.map;
    const total = cluster.num_pipelines * cluster.num_slots;
    const [now, then] = [this.body ? ofEpoch(this.body, total) : null, ofEpoch(would, total)];
    const parts = [note ? h("p", { class: "note" }, note) : null];
    if (then.has_plan) {
      parts.push(h("p", { class: "headline" }, `Training would go on at ${percent(then.throughput_kept)} of the fault-free throughput.`));
    } else {
      parts.push(h("p", { class: "problem headline" }, `Training could not go on: ${then.problem}.`), then.hint ? h("p", {}, `What would help: ${then.hint}.`) : null);
    }
    const copied = would.migrations.reduce((sum, move) => sum + move.bytes, 0);
    const longest = would.migrations.reduce((most, move) => Math.max(most, move.seconds ?? 0), 0);
    parts.push(h("table", { class: "compare" },
      h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", { scope: "col" }, `Now (epoch ${answer.base_epoch})`), h("th", { scope: "col" }, "Would be"))),
      h("tbody", {},
        row("Workers down", now?.num_failed ?? "", then.num_failed),
        row("Throughput kept", now ? percent(now.throughput_kept) : "", then.has_plan ? percent(then.throughput_kept) : "none"),
        row("Period", now ? microseconds(now.period_us) : "", then.has_plan ? microseconds(then.period_us) : "none"),
        row("Gap to the bound", now ? percent(now.gap) : "", then.has_plan ? percent(then.gap) : ""),
        row("Cheapest answer", now ? (RUNGS[now.chosen] ?? "none") : "", RUNGS[then.chosen] ?? "none"))));
    parts.push(h("dl", { class: "figures small" },
      figure("Migrations", String(would.migrations.length), would.migrations.length ? `${bytes(copied)} to copy${longest ? `, ${seconds(longest)}` : ""}` : "nobody moves"),
      figure("New connections", String(would.num_new_pairs), "pairs of workers"),
      then.has_plan ? figure("Plan", would.source === "store" ? "ready" : "made for this", would.source === "store" ? "it would be served at once" : "it is kept from now on") : null));
    if (then.has_plan) parts.push(h("p", { class: "note" }, capital(bestPossible(then)), "."));
    parts.push(h("div", { class: "actions" }, this.#clearButton(),
      h("button", { type: "button", class: "danger", onclick: () => this.#confirm() }, "Report this for real…")));
    fill(this.result, parts);
    announce(then.has_plan ? `would keep ${percent(then.throughput_kept)}` : "training could not go on");
  }

  #clearButton() {
    return h("button", { type: "button", onclick: () => this.clear() }, "Forget the what-if");
  }

  #confirm() {
    const sure = h("input", { type: "checkbox", id: "sure" });
    const go = h("button", { type: "button", class: "danger", disabled: true }, "Report now");
    const outcome = h("p", { role: "alert" });
    const dialog = openDialog("Report for real?",
      h("p", {}, "This tells the service that it has happened. Job ", name(this.jobId), " gets a new epoch and its workers change over to another plan. You report:"),
      h("ul", {}, this.events.map((event) => h("li", {}, name(reportOf(event))))),
      h("label", { class: "sure" }, sure, " It has happened: I have checked."), outcome,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
    sure.addEventListener("change", () => { go.disabled = !sure.checked; });
    go.addEventListener("click", async () => {
      go.disabled = true;
      fill(outcome, "Reporting…");
      try {
        await report(this.jobId, this.events, this.body?.epoch ?? null, (event) => { this.events = this.events.filter((other) => other !== event); });
        dialog.close();
        this.#work();
      } catch (error) {
        fill(outcome, capital(refusal(error)));
        go.disabled = !sure.checked;
      }
    });
  }
}

function refusal(error) {
  if (error.code === "scope_too_small") return "this key may look but not report; ask for one with the scope report, or report by `replan report`. Nothing was reported";
  if (error.code === "epoch_conflict") return `${error.message}. Close this and look again; nothing more was reported`;
  if (error.status === 0) return "no answer came. Report again here: the same report counts only once";
  return error.message;
}

function row(label, now, then) {
  return h("tr", { class: String(now) === String(then) ? null : "changed" }, h("th", { scope: "row" }, label), h("td", {}, String(now)), h("td", {}, String(then)));
}
