// A plan's timeline as the service sends it: planner/formats/timeline_file.py tells the form. Nothing is copied or parsed but the head.

export const KINDS = ["F", "I", "W", "B"];
const ARRAYS = { f64: Float64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array };

export class Timeline {
  /** Reads bytes; throws where they are no timeline of a version that this page knows. */
  constructor(buffer) {
    const view = new DataView(buffer);
    if (buffer.byteLength < 8 || view.getUint32(0) !== 0x5250544c) throw new Error("not a timeline");
    const end = 8 + view.getUint32(4, true);
    this.head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, end - 8)));
    if (this.head.version !== 1) throw new Error(`a timeline of version ${this.head.version}; reload the page`);
    for (const column of this.head.columns) {
      this[column.name] = new ARRAYS[column.type](buffer, end + column.offset, column.count);
    }
    this.numWorkers = this.head.num_pipelines * this.head.num_slots;
    this.dead = new Set(this.head.dead);
    this.slow = new Map(this.head.slow);
  }

  get numOperations() {
    return this.kind.length;
  }

  nameOf(worker) {
    return `${Math.floor(worker / this.head.num_slots)}/${worker % this.head.num_slots}`;
  }

  /** First row of a worker that ends behind a time. */
  firstBehind(worker, ns) {
    let low = this.offsets[worker];
    let high = this.offsets[worker + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end_ns[middle] > ns) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Row of a worker at a time; null between operations. */
  rowAt(worker, ns) {
    const row = this.firstBehind(worker, ns);
    return row < this.offsets[worker + 1] && this.start_ns[row] <= ns ? row : null;
  }

  /** `2F1.3`: stage, kind, home pipeline and microbatch. */
  label(row) {
    return `${this.stage[row]}${KINDS[this.kind[row]]}${this.home[row]}.${this.microbatch[row]}`;
  }

  /** Time that each worker computes, as shares of the period. */
  get loads() {
    if (!this._loads) {
      this._loads = new Float64Array(this.numWorkers);
      for (let worker = 0; worker < this.numWorkers; worker += 1) {
        let busy = 0;
        for (let row = this.offsets[worker]; row < this.offsets[worker + 1]; row += 1) busy += this.end_ns[row] - this.start_ns[row];
        this._loads[worker] = this.head.period_ns ? busy / this.head.period_ns : 0;
      }
    }
    return this._loads;
  }

  /** Workers that run others' microbatches. */
  get helpers() {
    if (!this._helpers) {
      this._helpers = new Set();
      for (let worker = 0; worker < this.numWorkers; worker += 1) {
        for (let row = this.offsets[worker]; row < this.offsets[worker + 1]; row += 1) {
          if (this.rerouted[row]) {
            this._helpers.add(worker);
            break;
          }
        }
      }
    }
    return this._helpers;
  }

  /** Bytes that a worker holds wherever they change: [[ns, bytes], ...]. */
  memory(worker) {
    const steps = [[0, 0]];
    for (let row = this.offsets[worker]; row < this.offsets[worker + 1]; row += 1) {
      const when = this.kind[row] === 0 ? this.start_ns[row] : this.end_ns[row];
      if (steps[steps.length - 1][0] === when) steps[steps.length - 1][1] = this.held_bytes[row];
      else steps.push([when, this.held_bytes[row]]);
    }
    return steps;
  }

  /** Workers in the order they are shown: those that failures touch first, or all as they are. */
  order(touchedFirst) {
    const all = Array.from({ length: this.numWorkers }, (_, worker) => worker);
    if (!touchedFirst || (!this.dead.size && !this.slow.size)) return all;
    const pipelines = new Set([...this.dead, ...this.slow.keys()].map((worker) => Math.floor(worker / this.head.num_slots)));
    const rank = (worker) => {
      if (this.dead.has(worker) || this.slow.has(worker)) return 0;
      if (this.helpers.has(worker)) return 1;
      return pipelines.has(Math.floor(worker / this.head.num_slots)) ? 2 : 3;
    };
    const ranks = all.map(rank);
    return all.sort((a, b) => ranks[a] - ranks[b] || a - b);
  }
}
