// Figures as people read them.

const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];

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

export function percent(share) {
  if (share === null || share === undefined) return "not known";
  const value = share * 100;
  return `${value === 0 || value >= 99.95 ? Math.round(value * 100) / 100 : Number(value.toFixed(value < 1 ? 2 : 1))} %`;
}

/** Seconds as two of days, hours, minutes, seconds. */
export function seconds(value) {
  if (value === null || value === undefined) return "not known";
  if (value < 60) return `${digits(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

export function ago(then, now) {
  if (then === null) return "never";
  const passed = Math.max(0, (now - Date.parse(then)) / 1000);
  return passed < 5 ? "just now" : `${seconds(Math.floor(passed))} ago`;
}

/** Time of day, with the date where it is not today. */
export function clock(text) {
  const when = new Date(text);
  if (Number.isNaN(when.getTime())) return "";
  const time = when.toLocaleTimeString([], { hour12: false });
  return when.toDateString() === new Date().toDateString() ? time : `${when.toISOString().slice(0, 10)} ${time}`;
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

/** The first few of a list, and how many more there are. */
export function some(list, most = 6) {
  return list.length <= most ? list.join(" ") : `${list.slice(0, most).join(" ")} and ${list.length - most} more`;
}
