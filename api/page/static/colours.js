// Colours by what they stand for. Okabe and Ito's palette, told apart with every kind of colour vision; never the only sign.

export const KIND_COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7"];
export const KIND_NAMES = ["F forward", "I input gradient", "W weight gradient", "B fused backward"];

/** What a theme needs beside them, read from the style sheet, so that both draw alike. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    ground: value("--chart"), idle: value("--idle"), sync: value("--sync"), ink: value("--ink"), soft: value("--soft"),
    line: value("--line"), down: value("--down"), slow: value("--slow"), pick: value("--pick"), tried: value("--tried"),
    low: value("--load-low"), high: value("--load-high"), unknown: value("--unknown"), heatLow: value("--heat-low"), heatHigh: value("--heat-high"),
    heatLost: value("--heat-lost"),
  };
}

/** Calls back when the theme changes, for as long as the signal is not given. */
export function onTheme(callback, signal) {
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", callback, { signal });
  }
}

export function rgb(text) {
  const number = Number.parseInt(text.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

/** A colour between two, `share` of the way. */
export function between(from, to, share) {
  const [a, b] = [rgb(from), rgb(to)];
  const part = Math.min(1, Math.max(0, share));
  return `#${a.map((value, n) => Math.round(value + (b[n] - value) * part).toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever can be read on a colour. */
export function inkOn(colour) {
  const [r, g, b] = rgb(colour).map((value) => (value / 255 <= 0.04045 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

/** As much of the end of a text as fits: names of machines differ at their ends. */
export function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  let [low, high] = [0, letters.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText(`…${letters.slice(middle).join("")}`).width <= width) high = middle;
    else low = middle + 1;
  }
  return letters.length - low >= 2 ? `…${letters.slice(low).join("")}` : "";
}
