// Keeps the overview of all jobs current, and knows whether the service still answers.

import { readEvents } from "./api.js";

const SILENT_MS = 6_500; // the service says something every 2 s
const RETRY_MS = [300, 700, 1_500, 3_000];

/** Jobs as the service tells of them. Events: `change` with the jobs' ids, `connection` with the state. */
export class Live extends EventTarget {
  jobs = new Map();
  /** "connecting", "live", "store" (answers, but its store does not), "lost" or "refused". */
  state = "connecting";
  heardAt = null;
  version = null;
  damaged = [];
  #offset = 0;
  #stopped = false;
  #stop = new AbortController();
  #failures = 0;

  /** The service's time, in milliseconds. */
  now() {
    return Date.now() + this.#offset;
  }

  async start() {
    setInterval(() => this.#watch(), 500);
    while (!this.#stopped) {
      this.#stop = new AbortController();
      try {
        await readEvents("/v1/overview/stream", this.#stop.signal, (name, data) => this.#hear(name, data));
        this.#become("lost");
      } catch (error) {
        if (error.status === 401 || error.status === 403) {
          this.#become("refused");
          return;
        }
        this.#become("lost");
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)]));
      this.#failures += 1;
    }
  }

  #watch() {
    if (this.heardAt !== null && this.state !== "lost" && performance.now() - this.heardAt > SILENT_MS) {
      this.#become("lost");
      this.#stop.abort();
    }
  }

  #hear(name, data) {
    this.heardAt = performance.now();
    this.#failures = 0;
    if (data.now) this.#offset = Date.parse(data.now) - Date.now();
    if (name === "trouble") {
      this.#become("store");
      return;
    }
    let changed = [];
    if (name === "overview") {
      changed = [...new Set([...this.jobs.keys(), ...data.jobs.map((job) => job.id)])];
      this.jobs = new Map(data.jobs.map((job) => [job.id, job]));
      this.version = data.version;
      this.damaged = data.damaged;
    } else if (name === "job") {
      this.jobs.set(data.id, data);
      changed = [data.id];
    } else if (name === "gone") {
      this.jobs.delete(data.id);
      changed = [data.id];
    }
    this.#become("live");
    if (changed.length || name === "overview") this.dispatchEvent(new CustomEvent("change", { detail: changed }));
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent("connection", { detail: state }));
  }
}
