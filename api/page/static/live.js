// Keeps the overview of all jobs current, and knows whether the service still answers.

import { readEvents } from "./api.js";

const SILENT_MS = 6_500; // the service says something every 2 s
const RETRY_MS = [300, 700, 1_500, 3_000];
const TOGETHER_MS = 150; // changes that come closer together than this are told of together
const HIDDEN_MS = 20_000; // browsers keep six connections a server: tabs that nobody looks at must not hold one each

/** Jobs as the service tells of them. Events: `change` with the jobs' ids, `connection` with the state. */
export class Live extends EventTarget {
  jobs = new Map();
  /** "connecting", "live", "store" (answers, but its store does not), "lost", "refused" (wants a key), "busy" (refuses for a
   * while), "strange" (answers something else), "paused" (the tab is hidden). */
  state = "connecting";
  /** Milliseconds of this page's own clock. */
  heardAt = null;
  version = null;
  damaged = [];
  #offset = 0;
  #stop = new AbortController();
  #failures = 0;
  #wake = () => {};
  #changed = new Set();
  #telling = null;
  #toldAt = 0;
  #hiddenAt = null;

  /** The service's time, in milliseconds. */
  now() {
    return Date.now() + this.#offset;
  }

  async start() {
    setInterval(() => this.#watch(), 500);
    document.addEventListener("visibilitychange", () => this.#show());
    for (;;) {
      if (this.state !== "refused" && this.state !== "paused") await this.#listen();
      await this.#rest();
      this.#failures += 1;
    }
  }

  /** Begins anew, with another key. */
  again() {
    this.#failures = 0;
    this.#become("connecting");
    this.#stop.abort();
    this.#wake();
  }

  async #listen() {
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    try {
      await readEvents("/v1/overview/stream", signal, (name, data) => this.#hear(name, data));
      this.#become("lost");
    } catch (error) {
      if (signal.aborted) return; // whoever gave it up has said why
      if (error.status === 401 || error.status === 403) this.#become("refused");
      else if (error.status === 429) this.#become("busy");
      else if (error.status === 0 || error.status >= 500 || error.name === "TypeError") this.#become("lost");
      else this.#become("strange");
    }
  }

  #rest() {
    const isOver = this.state === "refused" || this.state === "paused";
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (!isOver) setTimeout(resolve, RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)]);
    });
  }

  #watch() {
    const isHeld = this.state === "live" || this.state === "store";
    if (isHeld && performance.now() - this.heardAt > SILENT_MS) {
      this.#become("lost");
      this.#stop.abort();
    }
    if (isHeld && this.#hiddenAt !== null && performance.now() - this.#hiddenAt > HIDDEN_MS) {
      this.#become("paused");
      this.#stop.abort();
    }
  }

  #show() {
    this.#hiddenAt = document.visibilityState === "hidden" ? (this.#hiddenAt ?? performance.now()) : null;
    if (this.#hiddenAt === null && this.state === "paused") this.again();
  }

  #hear(name, data) {
    this.heardAt = performance.now();
    this.#failures = 0;
    if (data.now) this.#offset = Date.parse(data.now) - Date.now();
    if (name === "trouble") {
      this.#become("store");
      return;
    }
    if (name === "overview") {
      for (const id of [...this.jobs.keys(), ...data.jobs.map((job) => job.id)]) this.#changed.add(id);
      this.jobs = new Map(data.jobs.map((job) => [job.id, job]));
      this.version = data.version;
      this.damaged = data.damaged;
    } else if (name === "job") {
      this.jobs.set(data.id, data);
      this.#changed.add(data.id);
    } else if (name === "gone") {
      this.jobs.delete(data.id);
      this.#changed.add(data.id);
    }
    this.#become("live");
    if (this.#changed.size || name === "overview") this.#tell();
  }

  /** Tells at once what comes alone, and what comes in bursts a few times a second. */
  #tell() {
    if (this.#telling) return;
    const left = this.#toldAt + TOGETHER_MS - performance.now();
    const tell = () => {
      this.#telling = null;
      this.#toldAt = performance.now();
      const ids = [...this.#changed];
      this.#changed.clear();
      this.dispatchEvent(new CustomEvent("change", { detail: ids }));
    };
    if (left <= 0) tell();
    else this.#telling = setTimeout(tell, left);
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent("connection", { detail: state }));
  }
}
