// What if: choose what to try, see what would be served, and, as a step of its own, report it for real.

import { announce, figure, fill, h, name, openDialog, table } from "./dom.js";
import { bytes, capital, count, microseconds, percent, rackName, seconds, sentence } from "./format.js";
import { declared, eventOf, fromText, report, reportOf, toText, words, workOut } from "./trial.js";
import { RUNGS, bestPossible, ofEpoch } from "./verdict.js";
import { WORDS } from "./words.js";

const MOST_NODES = 32; // of one worker, to choose from

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
    this.isWaiting = false;
    this.choice = h("div", { class: "choice" });
    this.shards = h("div", { class: "actions", hidden: true }, h("button", { type: "button", onclick: () => this.add(eventOf("shards_restored", "node", [])) }, "Optimizer shards restored"));
    this.list = h("ul", { class: "trial" });
    this.progress = h("p", { class: "note", role: "status" });
    this.result = h("div", { class: "result" });
    this.element = h("section", { class: "card what-if", "aria-label": "what if" },
      h("h2", {}, "What if…"), this.choice, this.shards, this.list, this.progress, this.result);
    this.choose(null);
  }

  /** Tries on another epoch; what is being tried is worked out anew. */
  async follow(body) {
    const moved = this.body !== null && this.body.epoch !== body.epoch && this.events.length > 0;
    this.body = body;
    this.shards.hidden = body.problem?.code !== "optimizer_shard_lost";
    if (this.events.length) await this.#work(moved ? `The job moved on to epoch ${body.epoch} meanwhile; this is worked out for that. ` : "");
  }

  /** Takes what a link says. */
  restore(texts) {
    const events = texts.map((text) => fromText(text, (rack) => this.#nodesOfRack(rack)));
    this.events = events.filter(Boolean);
    const numBad = events.length - this.events.length;
    if (events.length) this.#work(numBad ? `${count(numBad, "event")} of the link cannot be read and ${numBad === 1 ? "is" : "are"} left out. ` : "");
  }

  /** The connection is back: works out again what it cut off. */
  resume() {
    if (this.isWaiting) this.#work();
  }

  /** Texts of a link that brings this back. */
  get texts() {
    return this.events.map(toText);
  }

  /** Offers what can be tried with a worker. */
  choose(worker) {
    this.worker = worker;
    if (worker === null || !this.map.cluster) {
      fill(this.choice, h("p", { class: "note" }, "Choose a worker on the map, or find it by name, then try what would happen if its node, its rack or the worker alone failed or came back. Nothing is reported by trying."));
      return;
    }
    const label = this.map.nameOf(worker);
    const options = [
      ...this.map.nodesOf(worker).slice(0, MOST_NODES).map((node) => ({ text: `node ${node}`, what: "node", targets: [node], rack: null })),
      ...this.map.racksOf(worker).map((rack) => {
        const targets = this.#nodesOfRack(rack);
        return { text: `${rackName(rack)}: ${count(targets.length, "node")}`, what: "node", targets, rack };
      }),
      { text: `worker ${label} alone`, what: "worker", targets: [label], rack: null },
    ];
    const select = h("select", { id: "target" }, options.map((option, n) => h("option", { value: n }, option.text)));
    const speed = h("input", { type: "number", min: 1, max: 99, value: 50, id: "speed", "aria-label": "speed that is left, percent" });
    const add = (kind) => () => {
      const { what, targets, rack } = options[Number(select.value)];
      const left = Math.min(99, Math.max(1, Number(speed.value) || 50)) / 100;
      this.add(eventOf(kind, what, targets, { speed: kind === "node_degraded" ? left : null, rack }));
    };
    this.about = h("p", {});
    fill(this.choice, this.about,
      h("div", { class: "actions" }, h("label", { for: "target" }, "Try with "), select),
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: add("node_failed") }, "Fail"),
        h("button", { type: "button", onclick: add("node_recovered") }, "Restore"),
        h("span", { class: "pair" }, h("button", { type: "button", onclick: add("node_degraded") }, "Slow to"), speed, " %")));
    this.describe();
  }

  /** Says anew how the chosen worker is. */
  describe() {
    if (this.worker !== null && this.about) fill(this.about, name(this.map.words(this.worker).join(" · ")));
  }

  add(event) {
    this.events.push(event);
    this.#work();
  }

  /** A node is said to be back: the same as to try that alone, and to want to declare it. */
  async declareBack(node) {
    this.events = [eventOf("node_recovered", "node", [node])];
    await this.#work();
    if (this.answer !== null && this.events.length === 1) this.#confirm();
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
    this.isWaiting = false;
    if (!this.events.length) {
      this.#give(null, [], note);
      return;
    }
    // What was worked out before stays until then, but is not to be reported any more.
    fill(this.progress, note, "Working it out… A plan that is not ready is searched for.");
    for (const button of this.result.querySelectorAll(".declare")) button.disabled = true;
    try {
      const answer = await workOut(this.jobId, this.events, this.body?.epoch ?? null);
      if (round === this.round) this.#give(answer, this.#told(answer), note);
    } catch (error) {
      if (round !== this.round) return;
      this.isWaiting = error.isPassing === true;
      this.#give(null, this.#refused(error), note);
    }
  }

  #give(answer, parts, note = "") {
    this.answer = answer;
    this.element.classList.toggle("open", this.events.length > 0);
    fill(this.progress, note);
    fill(this.result, parts);
    this.dispatchEvent(new CustomEvent("tried", { detail: answer }));
  }

  #refused(error) {
    const isOld = error.code === "epoch_conflict";
    const text = isOld ? `This was to be tried on epoch ${this.body.epoch}, but the job is at epoch ${error.problem.current_epoch} by now.` : sentence(error.message);
    const link = isOld ? h("p", {}, h("a", { href: `#/jobs/${encodeURIComponent(this.jobId)}?${new URLSearchParams(this.texts.map((found) => ["try", found]))}` }, "Try it on the current epoch")) : null;
    return [h("p", { class: "problem", role: "alert" }, text), link,
      this.isWaiting ? h("p", { class: "note" }, "It is worked out as soon as the service answers again.") : null,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => this.#work() }, "Try again"), this.#clearButton())];
  }

  #told(answer) {
    const would = answer.would_be;
    const { cluster } = this.map;
    const total = cluster.num_pipelines * cluster.num_slots;
    const [now, then] = [this.body ? ofEpoch(this.body, total) : null, ofEpoch(would, total)];
    const parts = [];
    if (then.has_plan) {
      parts.push(h("p", { class: "headline" }, `Training would go on at ${percent(then.throughput_kept)} of the fault-free throughput.`));
    } else {
      parts.push(h("p", { class: "problem headline" }, `Training could not go on: ${then.problem}.`), then.hint ? h("p", {}, `What would help: ${then.hint}.`) : null);
    }
    parts.push(comparison(answer, now, then), consequences(would, then));
    if (then.has_plan) parts.push(h("p", { class: "note" }, sentence(bestPossible(then))));
    parts.push(h("div", { class: "actions" }, this.#clearButton(),
      h("button", { type: "button", class: "declare", onclick: () => this.#confirm() }, "Declare ", name(declared(this.events)), "… (changes the live job)")));
    announce(then.has_plan ? `would keep ${percent(then.throughput_kept)}` : "training could not go on");
    return parts;
  }

  #clearButton() {
    return h("button", { type: "button", onclick: () => this.clear() }, "Forget the what-if");
  }

  #confirm() {
    const sure = h("input", { type: "checkbox", id: "sure" });
    const go = h("button", { type: "button", class: "danger", disabled: true }, "Declare now");
    const outcome = h("p", { role: "alert" });
    const dialog = openDialog("Declare for real?",
      h("p", {}, "This tells the service that it has happened. Job ", name(this.jobId), " gets a new plan, and its workers change over to it. You declare:"),
      h("ul", {}, this.events.map((event) => h("li", {}, name(reportOf(event))))),
      h("label", { class: "sure" }, sure, " It has happened: I have checked."), outcome,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
    sure.addEventListener("change", () => { go.disabled = !sure.checked; });
    go.addEventListener("click", async () => {
      go.disabled = true;
      fill(outcome, "Declaring…");
      const planned = this.events.length;
      try {
        await report(this.jobId, this.events, this.answer?.base_epoch ?? this.body?.epoch ?? null, (event) => { this.events = this.events.filter((other) => other !== event); });
        dialog.close();
        this.#work();
      } catch (error) {
        fill(outcome, sentence(refusal(error, planned - this.events.length)));
        go.disabled = !sure.checked;
      }
    });
  }
}

function comparison(answer, now, then) {
  const row = (label, before, after) => ({ cells: [label, String(before), String(after)], className: String(before) === String(after) ? null : "changed" });
  return table("what would change", ["", `Now (epoch ${answer.base_epoch})`, "Would be"], [
    row("Workers down", now?.num_failed ?? "", then.num_failed),
    row("Throughput kept", now ? percent(now.throughput_kept) : "", then.has_plan ? percent(then.throughput_kept) : "none"),
    row("Iteration time (period)", now ? microseconds(now.period_us) : "", then.has_plan ? microseconds(then.period_us) : "none"),
    row("Gap to the bound", now ? percent(now.gap) : "", then.has_plan ? percent(then.gap) : "none"),
    row("Best answer", now ? (RUNGS[now.chosen] ?? "none") : "", RUNGS[then.chosen] ?? "none")]);
}

function consequences(would, then) {
  const copied = would.migrations.reduce((sum, move) => sum + move.bytes, 0);
  const longest = would.migrations.reduce((most, move) => Math.max(most, move.seconds ?? 0), 0);
  const isReady = would.source === "store";
  const bare = would.migrations.filter((move) => move.copy_from === null).length;
  const warning = bare ? h("p", { class: "problem" }, `Training would have to start from its last checkpoint: no live worker holds what ${count(bare, "worker")} ${bare === 1 ? "has" : "have"} to load.`) : null;
  return [warning, h("dl", { class: "figures small" },
    figure("Migrations", String(would.migrations.length), would.migrations.length ? `${bytes(copied)} to load${longest ? `, ${seconds(longest)}` : ""}` : "nobody moves", WORDS.migration),
    figure("New connections", String(would.num_new_pairs), "pairs of workers", WORDS["new connections"]),
    then.has_plan ? figure("Plan", isReady ? "ready" : "made for this trial", isReady ? "workers would get it at once" : "and kept; the job was not touched", WORDS["plan ready"]) : null)];
}

function refusal(error, numReported) {
  const rest = numReported ? `${count(numReported, "event")} of the list ${numReported === 1 ? "is" : "are"} reported, the others are not` : "Nothing was reported";
  if (error.code === "scope_too_small") return `this key may look but not report; ask for one with the scope report, or report by replan report. ${rest}`;
  if (error.code === "epoch_conflict") return `something else was reported meanwhile: ${error.message}. Close this and look again. ${rest}`;
  if (error.status === 0) return "no answer came. Declare again here: the same counts only once";
  return `${error.message}. ${rest}`;
}
