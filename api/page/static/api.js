// Talks to the service that the page came from.

const KEY = "replan-key";
const LIMIT_MS = 120_000; // until an answer begins

/** What the service refused or could not do; `code` is stable, `status` 0 where it was not reached. */
export class ServiceError extends Error {
  constructor(status, code, detail, problem = {}) {
    super(detail);
    this.status = status;
    this.code = code;
    this.problem = problem;
  }

  /** Whether the same may go well a little later. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

let onKeyWanted = () => {};
let kept = null;

/** Calls this whenever the service asks for a key, or for another one. */
export function whenKeyWanted(callback) {
  onKeyWanted = callback;
}

/** The key, kept by this tab alone and for as long as it is open; by the page alone where the browser keeps nothing. */
export const key = {
  get() {
    return kept ?? stored((storage) => storage.getItem(KEY));
  },
  set(text) {
    kept = text;
    stored((storage) => storage.setItem(KEY, text));
  },
  clear() {
    kept = null;
    stored((storage) => storage.removeItem(KEY));
  },
};

function stored(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null; // a browser that keeps nothing says so by an error
  }
}

/** Why a text cannot be a key; null where it can. */
export function whyNoKey(text) {
  return /^[\x21-\x7e]{1,512}$/.test(text) ? null : "A key is one word of letters, digits and signs, such as rpk_…; this is not.";
}

function headers(more = {}) {
  const text = key.get();
  return text ? { ...more, Authorization: `Bearer ${text}` } : more;
}

/** An answer that went well; anything else is thrown as a ServiceError. */
export async function ask(path, options = {}) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), LIMIT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, late.signal]) : late.signal;
  let answer;
  try {
    answer = await fetch(path, { ...options, signal, headers: headers(options.headers), credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError" && !late.signal.aborted) throw error;
    throw new ServiceError(0, "unreachable", "the service does not answer");
  } finally {
    clearTimeout(timer);
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  if (answer.status === 401) onKeyWanted(problem.detail);
  throw new ServiceError(answer.status, problem.code ?? "unknown", problem.detail ?? `the service answered ${answer.status}`, problem);
}

export async function getJson(path, options) {
  return (await ask(path, options)).json();
}

export async function postJson(path, body, more = {}) {
  const options = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...more } };
  return (await ask(path, options)).json();
}

/** Reads server-sent events until the stream ends; EventSource cannot send a key. `onEvent(name, data)` gets each. */
export async function readEvents(path, signal, onEvent) {
  const answer = await ask(path, { signal, headers: { Accept: "text/event-stream" }, cache: "no-store" });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = { event: "message", data: "" };
      for (const line of text.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      text = text.slice(end + 2);
      if (event.data) understand(event, onEvent);
    }
  }
}

function understand(event, onEvent) {
  try {
    onEvent(event.event, JSON.parse(event.data));
  } catch {
    throw new ServiceError(200, "not_understood", "the service says something that this page does not understand");
  }
}

/** Path of something of a job; names are encoded, whatever is in them. */
export function jobPath(id, ...parts) {
  return ["/v1/jobs", encodeURIComponent(id), ...parts].join("/");
}

/** Saves what a path answers as a file. */
export async function download(path, filename) {
  save(await (await ask(path)).blob(), filename);
}

export function save(blob, filename) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = filename.replace(/[^A-Za-z0-9._-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
