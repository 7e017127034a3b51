"use strict";
// Where data comes from: the server, or scripts beside an exported page (a file cannot fetch).
const shoal = {
  live: document.documentElement.dataset.live === "yes",
  root: document.documentElement.dataset.root,
  waiting: new Map(),
  kept: new Map(),

  // An element with attributes and children; strings become text, never markup.
  make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  },

  // The series of a run, {metrics, series}; live, only the metrics asked for.
  async series(slug, metrics) {
    if (!shoal.live) return shoal.script(slug, `data/${slug}.js`);
    const asked = metrics.map((name) => `metric=${encodeURIComponent(name)}`).join("&");
    return shoal.json(`data/${slug}?${asked}`);
  },

  replay(slug, file) {
    if (!shoal.live) return shoal.script(`${slug}/${file}`, `data/${slug}/${file}.js`);
    return shoal.json(`file/${slug}/replays/${encodeURIComponent(file)}`);
  },

  async json(path) {
    const answer = await fetch(shoal.root + path);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  },

  async text(path) {
    const answer = await fetch(shoal.root + path);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.text();
  },

  script(name, path) {
    if (!shoal.kept.has(name)) {
      shoal.kept.set(name, new Promise((resolve, reject) => {
        shoal.waiting.set(name, resolve);
        document.head.append(shoal.make("script", { src: shoal.root + path, onerror: reject }));
      }));
    }
    return shoal.kept.get(name);
  },

  receive(name, content) {
    shoal.waiting.get(name)?.(content);
  },

  dark() {
    return matchMedia("(prefers-color-scheme: dark)").matches;
  },
};
window.shoal = shoal;
