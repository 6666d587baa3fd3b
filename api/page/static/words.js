// What the words on the page mean, for whoever sees it for the first time.

import { h, openDialog } from "./dom.js";

export const WORDS = {
  job: "One training run that the service looks after.",
  worker: "The GPUs that run one slot of one pipeline; named pipeline/slot, as in 1/2. Most often one machine, or a few GPUs of it.",
  pipeline: "One whole copy of the model. All pipelines train on different data at the same time; a column of the map.",
  slot: "A place along a pipeline, s0, s1, …: it holds some layers of the model. Workers of the same slot hold the same parameters, so one can take over for another. A line of the map.",
  plan: "Who computes what and in which order, worked out for exactly what is down now. Workers follow it by themselves.",
  epoch: "Number of a plan, not of a pass over the data: each report, and each better plan, makes the next one. The newest is to be run.",
  rerouted: "Run by another pipeline's worker of the same slot, since its own is down. Training gives the same result, only later.",
  "iteration time (period)": "Time from the start of one training step to the start of the next.",
  "throughput kept": "Speed of training now as a share of its speed with everybody up.",
  "bound, gap": "No plan can be faster than the bound. The gap is how far above it this plan is: at most that much could still be won.",
  bubble: "Time in which a worker waits, grey in the timeline.",
  "F, I, W, B": "Forward; gradient of the inputs; gradient of the weights; both gradients at once.",
  sync: "At the end of each iteration the workers of a slot add up their gradients and step the optimizer.",
  acknowledged: "The worker has said that it has the plan. One that does not may be dead, stuck, or not following the service.",
  migration: "A worker takes the place of another slot's worker, and copies the parameters of that slot first.",
  "new connections": "Pairs of workers that exchange data under this plan and did not before.",
  checkpoint: "The training script's own saved state. The service keeps none and knows of none.",
  "plan ready": "Made before the failure, so it is in force at once. Any other one is searched for when the failure is reported, a moment later.",
};

/** Tells what the words mean. */
export function showWords() {
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = openDialog("What the words mean", h("div", { class: "actions" }, close),
    h("dl", { class: "words" }, Object.entries(WORDS).map(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)])));
}
