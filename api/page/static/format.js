// Figures as people read them.

const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];
const MOMENT = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, timeZoneName: "short",
});

/** Nanoseconds, with the unit that leaves three or four digits. */
export function duration(ns) {
  if (ns === null || ns === undefined) return "not known";
  for (const [unit, size] of UNITS) if (Math.abs(ns) >= size) return `${digits(ns / size)} ${unit}`;
  return `${digits(ns)} ns`;
}

export const microseconds = (us) => (us === null || us === undefined ? "not known" : duration(us * 1000));

function digits(value) {
  const size = Math.abs(value);
  const places = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return String(Number(value.toFixed(places)));
}

/** A share in percent; the space in it does not break. */
export function percent(share) {
  if (share === null || share === undefined) return "not known";
  const value = share * 100;
  return `${value === 0 || value >= 99.95 ? Math.round(value * 100) / 100 : Number(value.toFixed(value < 1 ? 2 : 1))}\u00a0%`;
}

/** Seconds as two of days, hours, minutes, seconds. */
export function seconds(value) {
  if (value === null || value === undefined) return "not known";
  if (value < 60) return `${digits(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

/** How long before `now`, both in milliseconds since 1970 or as dates in text. */
export function ago(then, now) {
  if (then === null) return "never";
  const passed = Math.max(0, (now - (typeof then === "number" ? then : Date.parse(then))) / 1000);
  return passed < 5 ? "just now" : `${seconds(Math.floor(passed))} ago`;
}

/** Date, time of day and time zone, as this browser's clock has them. */
export function clock(moment) {
  const when = new Date(moment);
  return Number.isNaN(when.getTime()) ? "at a time that cannot be read" : MOMENT.format(when);
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let n = 0;
  let value = count;
  while (value >= 1024 && n < units.length - 1) {
    value /= 1024;
    n += 1;
  }
  return `${digits(value)} ${units[n]}`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** The first few of a list, and how many more there are; `total` where the list is only the beginning of what there is. */
export function some(list, most = 6, total = list.length) {
  const shown = list.slice(0, most);
  return total <= shown.length ? shown.join(" ") : `${shown.join(" ")} and ${(total - shown.length).toLocaleString("en")} more`;
}

/** "n02, n06 or n10": three at most by name. */
export function either(list, word = "or") {
  const shown = list.length > 3 ? [...list.slice(0, 2), `${list.length - 2} more`] : list.map(String);
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} ${word} ${shown[shown.length - 1]}` : shown.join("");
}

/** "rack r7", and "rack0" where the name says itself that it is one. */
export const rackName = (rack) => (/^rack/i.test(rack) ? rack : `rack ${rack}`);

/** Begins with a capital letter, unless it begins with somebody's name, which keeps its letters. */
export function capital(text) {
  return /^[a-z]+(?=[ ,;:.]|$)/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** The same with a full stop, where it has none. */
export const sentence = (text) => capital(/[.!?…]$/.test(text) ? text : `${text}.`);
