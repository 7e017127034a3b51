"use strict";
// Curves of metrics: a card for each, seeds of one kin as a band, smoothing, zoom, steps or time.
shoal.Charts = class {
  static COLOURS = ["#2f6fde", "#e4572e", "#2a9d6f", "#9b5de5", "#e0a100", "#00a6c7", "#d6408b", "#7a6a53"];
  static MOST = 24;
  static PRESETS = {
    Overview: (name) => /^evaluation\/(episode\/.*|[^/]+\/return)$/.test(name) || /^[^/]+\/(return|elo|loss|actor_loss|critic_loss|entropy)$/.test(name),
    Returns: (name) => /^(evaluation\/)?[^/]+\/return$/.test(name),
    Agents: (name) => /^(evaluation\/)?[^/]+\/[^/]+\/return$/.test(name) && !/^evaluation\/[^/]+\/return$/.test(name),
    Wins: (name) => /(^|\/)episode\//.test(name) || /(won|win|draw|loss$)/.test(name.split("/").pop()) && !/_loss$|\/loss$/.test(name),
    Losses: (name) => /loss|entropy|kl|clip|error|grad|norm|\/q$/.test(name),
    Elo: (name) => /elo/.test(name),
    All: () => true,
  };

  constructor(home, kins) {
    this.kins = kins;
    this.runs = [];
    this.names = [];
    this.shown = null; // metrics on show; null until somebody has chosen
    this.preset = "Overview";
    this.axis = "step";
    this.smooth = 0;
    this.bands = true;
    this.plots = new Map();
    this.data = new Map();
    this.pending = 0; // a timer, if something was read and not drawn yet
    this.bar = shoal.make("div", { class: "bar" });
    this.legend = shoal.make("div", { class: "legend" });
    this.cards = shoal.make("div", { class: "cards" });
    this.note = shoal.make("p", { class: "faint" });
    this.warnings = shoal.make("div", { role: "status" });
    home.append(this.bar, this.legend, this.note, this.warnings, this.cards);
    this.controls();
    new ResizeObserver(() => this.resize()).observe(this.cards);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  controls() {
    const make = shoal.make;
    this.buttons = make("div", { class: "tabs", role: "group", "aria-label": "metrics" });
    this.find = make("input", {
      type: "search", list: "metrics", placeholder: "add a metric …", "aria-label": "add a metric",
      onchange: () => this.add(this.find.value),
    });
    this.list = make("datalist", { id: "metrics" });
    const axis = make("select", { "aria-label": "x-axis", onchange: () => { this.axis = axis.value; this.draw(); } },
      make("option", { value: "step" }, "steps"), make("option", { value: "seconds" }, "seconds"));
    const smooth = make("input", {
      type: "range", min: 0, max: 0.99, step: 0.01, value: 0, "aria-label": "smoothing",
      oninput: () => { this.smooth = Number(smooth.value); this.draw(); },
    });
    const bands = make("input", { type: "checkbox", checked: true, onchange: () => { this.bands = bands.checked; this.draw(); } });
    this.bar.append(this.buttons, this.find, this.list, make("label", {}, "x ", axis),
      make("label", {}, "smooth ", smooth), make("label", {}, bands, " seeds as bands"));
  }

  // Show these runs: [{slug, kin, name}].
  async show(runs) {
    this.runs = runs;
    for (const slug of [...this.data.keys()]) if (!this.has(slug)) this.data.delete(slug);
    this.learn();
    this.draw();
    await this.load(runs.map((run) => run.slug));
  }

  // Read the series of these runs again; each is drawn as soon as it is there.
  async load(slugs) {
    const wanted = slugs.filter((slug) => this.has(slug));
    await Promise.all(wanted.map((slug) => this.read(slug)));
    await Promise.all(this.runs.map((run) => run.slug).filter((slug) => this.lacks(slug)).map((slug) => this.read(slug)));
    this.refresh();
  }

  // A run's series: first its metrics' names, where they are new, then those that are shown.
  async read(slug) {
    for (let tries = 0; tries < 2 && (!tries || this.lacks(slug)); tries++) {
      let found = { metrics: [], series: {} };
      try {
        found = await shoal.series(slug, this.metrics());
      } catch (error) { /* a run that cannot be read has no curves */ }
      if (!this.has(slug)) return; // it was unpicked meanwhile
      this.data.set(slug, found);
      this.learn();
    }
    this.pending ||= setTimeout(() => this.refresh(), 200);
  }

  learn() {
    this.names = [...new Set([...this.data.values()].flatMap((one) => one.metrics))].sort(shoal.order);
  }

  has(slug) {
    return this.runs.some((run) => run.slug === slug);
  }

  // Whether a run has a metric that is shown and was not asked for.
  lacks(slug) {
    const mine = this.data.get(slug);
    return Boolean(mine) && this.metrics().some((name) => mine.metrics.includes(name) && !mine.series[name]);
  }

  refresh() {
    clearTimeout(this.pending);
    this.pending = 0;
    this.tabs();
    this.draw();
  }

  metrics() {
    const chosen = this.shown ?? this.names.filter(shoal.Charts.PRESETS[this.preset]);
    const there = chosen.length || this.shown ? chosen : this.names.filter((name) => /return$/.test(name));
    return there.filter((name) => this.names.includes(name)).slice(0, shoal.Charts.MOST);
  }

  tabs() {
    const fitting = Object.keys(shoal.Charts.PRESETS).filter(
      (name) => this.names.some(shoal.Charts.PRESETS[name]));
    const told = fitting.join() + this.preset;
    if (told !== this.told) {
      this.told = told;
      this.buttons.replaceChildren(...fitting.map((name) => shoal.make("button", {
        type: "button", "aria-pressed": String(name === this.preset),
        onclick: () => { this.preset = name; this.shown = null; this.load(this.runs.map((run) => run.slug)); },
      }, name)));
    }
    if (this.list.children.length !== this.names.length) {
      this.list.replaceChildren(...this.names.map((name) => shoal.make("option", { value: name })));
    }
  }

  async add(name) {
    this.find.value = "";
    if (!this.names.includes(name)) return;
    this.shown = [name, ...this.metrics().filter((other) => other !== name)];
    this.preset = "";
    await this.load(this.runs.map((run) => run.slug));
  }

  async remove(name) {
    this.shown = this.metrics().filter((other) => other !== name);
    this.preset = "";
    this.tabs();
    this.draw();
  }

  // -- drawing ------------------------------------------------------------------------------------

  draw() {
    const names = this.metrics();
    const groups = this.groups();
    const unread = this.runs.length - this.data.size;
    this.note.textContent = !this.runs.length ? "Pick runs above to see their curves."
      : unread ? `Reading ${unread} of ${this.runs.length} runs …`
      : names.length ? "" : "These runs have no such metric yet.";
    this.explain(groups);
    this.warn();
    this.resize();
    for (const [name, plot] of this.plots) {
      if (!names.includes(name)) { plot.chart?.destroy(); plot.card.remove(); this.plots.delete(name); }
    }
    names.forEach((name, place) => {
      if (!this.plots.has(name)) this.plots.set(name, this.card(name));
      const { card } = this.plots.get(name);
      if (this.cards.children[place] !== card) this.cards.insertBefore(card, this.cards.children[place] ?? null);
      this.plot(name, groups);
    });
  }

  // Runs that differ only in their seed share a colour, and a band.
  groups() {
    const kins = [...new Set(this.runs.map((run) => run.kin))];
    return kins.map((kin, i) => ({
      name: this.kins.get(kin) ?? kin,
      colour: shoal.Charts.COLOURS[i % shoal.Charts.COLOURS.length],
      runs: this.runs.filter((run) => run.kin === kin),
    }));
  }

  explain(groups) {
    this.legend.replaceChildren(...groups.map((group) => {
      const swatch = shoal.make("i", {});
      swatch.style.background = group.colour;
      const seeds = group.runs.length > 1 ? ` (${group.runs.length} seeds)` : "";
      return shoal.make("span", {}, swatch, group.name + seeds);
    }));
  }

  warn() {
    const told = this.runs.flatMap((run) => (this.data.get(run.slug)?.remarks ?? []).map((remark) => `${run.name}: ${remark}`));
    if (told.join() === this.warned) return;
    this.warned = told.join();
    this.warnings.replaceChildren(...told.slice(0, 5).map((remark) => shoal.make("p", { class: "warn" }, remark)));
    if (told.length > 5) this.warnings.append(shoal.make("p", { class: "faint" }, `and ${told.length - 5} more`));
  }

  card(name) {
    const close = shoal.make("button", { type: "button", class: "close", "aria-label": `remove ${name}`, onclick: () => this.remove(name) }, "×");
    const place = shoal.make("div", { class: "plot" });
    const card = shoal.make("figure", { class: "card", "data-metric": name }, shoal.make("figcaption", {}, name, close), place);
    return { card, place, chart: null, shape: "" };
  }

  // The lines of a metric: [{label, colour, xs, ys, low, high}].
  lines(name, groups) {
    const found = [];
    for (const group of groups) {
      const curves = group.runs.map((run) => ({ run, ...this.curve(run.slug, name) })).filter((one) => one.xs.length);
      if (!curves.length) continue;
      if (this.bands && curves.length > 1) found.push({ label: group.name, colour: group.colour, ...shoal.band(curves) });
      else for (const one of curves) found.push({ label: group.runs.length > 1 ? `${group.name}, ${one.run.name}` : group.name, colour: group.colour, xs: one.xs, ys: one.ys });
    }
    return found;
  }

  curve(slug, name) {
    const series = this.data.get(slug)?.series[name];
    if (!series) return { xs: [], ys: [] };
    const xs = [], ys = [];
    series[this.axis].forEach((x, i) => {
      if (x === null || series.value[i] === null || (xs.length && x <= xs[xs.length - 1])) return;
      xs.push(x);
      ys.push(series.value[i]);
    });
    return { xs, ys: shoal.smoothed(ys, this.smooth) };
  }

  plot(name, groups) {
    const plot = this.plots.get(name);
    const lines = this.lines(name, groups);
    const { data, columns } = shoal.table(lines);
    const shape = JSON.stringify([columns.map((one) => [one.label, one.colour, one.edge]), this.axis, shoal.dark()]);
    if (plot.chart && plot.shape === shape) {
      const { min, max } = plot.chart.scales.x;
      const zoomed = plot.zoomed;
      plot.chart.setData(data, !zoomed);
      if (zoomed) plot.chart.setScale("x", { min, max });
      return;
    }
    plot.chart?.destroy();
    plot.shape = shape;
    plot.zoomed = false;
    plot.chart = new uPlot(this.options(plot, columns), data, plot.place);
  }

  options(plot, columns) {
    const ink = shoal.dark() ? "#98a3ac" : "#68727b";
    const grid = { stroke: shoal.dark() ? "#2b333b" : "#e8ecef", width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const bands = [];
    columns.forEach((one, i) => { if (one.edge === "high") bands.push({ series: [i + 1, i + 2], fill: one.colour + "2b" }); });
    return {
      width: this.width(), height: 200, cursor: { drag: { x: true, y: false }, focus: { prox: 24 } },
      legend: { live: true }, scales: { x: { time: false } }, bands,
      axes: [{ ...axis, size: 28, values: (u, values) => values.map((x) => shoal.short(x)) },
        { ...axis, size: 52, values: (u, values) => values.map((y) => shoal.short(y)) }],
      series: [{ label: this.axis === "step" ? "steps" : "seconds", value: (u, x) => x == null ? "" : x.toLocaleString("en", { maximumFractionDigits: 1 }) },
        ...columns.map((one) => ({
          label: one.label, stroke: one.edge ? "transparent" : one.colour, width: one.edge ? 0 : 2, spanGaps: true,
          points: { show: one.edge ? false : undefined, size: 4 }, class: one.edge ? "edge" : "line",
          value: (u, y) => y == null ? "" : shoal.short(y),
        }))],
      hooks: { setScale: [(u, key) => {
        if (key !== "x" || !u.data[0].length) return;
        const xs = u.data[0];
        plot.zoomed = u.scales.x.min > xs[0] || u.scales.x.max < xs[xs.length - 1];
      }] },
    };
  }

  width() {
    const fitting = Math.max(1, Math.floor(this.cards.clientWidth / 400));
    const columns = Math.min(fitting, Math.max(this.metrics().length, 2));
    return Math.max(Math.floor((this.cards.clientWidth - (columns - 1) * 16) / columns) - 26, 220);
  }

  resize() {
    const width = this.width();
    for (const { chart } of this.plots.values()) if (chart && chart.width !== width) chart.setSize({ width, height: 200 });
  }
};

// -- numbers ---------------------------------------------------------------------------------------

// An exponential mean, freed of its start at zero.
shoal.smoothed = function (values, weight) {
  if (!weight) return values;
  let mean = 0, share = 0;
  return values.map((y) => {
    mean = weight * mean + (1 - weight) * y;
    share = weight * share + (1 - weight);
    return mean / share;
  });
};

shoal.at = function (xs, ys, x) {
  if (x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  if (xs[high] === xs[low]) return ys[low];
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low]);
};

// Mean, least and greatest of several curves, where at least one of them is.
shoal.band = function (curves) {
  const all = [...new Set(curves.flatMap((one) => one.xs))].sort((a, b) => a - b);
  const every = Math.ceil(all.length / 600);
  const xs = all.filter((_, i) => i % every === 0 || i === all.length - 1);
  const ys = [], low = [], high = [];
  for (const x of xs) {
    const there = curves.map((one) => shoal.at(one.xs, one.ys, x)).filter((y) => y !== null);
    ys.push(there.reduce((a, b) => a + b, 0) / there.length);
    low.push(Math.min(...there));
    high.push(Math.max(...there));
  }
  return { xs, ys, low, high };
};

// Lines as one table over all their x, as uPlot wants them; a band is two more columns.
shoal.table = function (lines) {
  const tables = [], columns = [];
  for (const line of lines) {
    tables.push([line.xs, line.ys]);
    columns.push({ label: line.label, colour: line.colour });
    if (!line.low) continue;
    tables.push([line.xs, line.high], [line.xs, line.low]);
    columns.push({ label: "high", colour: line.colour, edge: "high" }, { label: "low", colour: line.colour, edge: "low" });
  }
  return { data: tables.length ? uPlot.join(tables) : [[]], columns };
};

// Evaluations first, then by name.
shoal.order = function (a, b) {
  const place = (name) => (name.startsWith("evaluation/") ? 0 : 1);
  return place(a) - place(b) || (a < b ? -1 : 1);
};

shoal.short = function (x) {
  const size = Math.abs(x);
  if (size >= 1e9) return +(x / 1e9).toFixed(2) + "G";
  if (size >= 1e6) return +(x / 1e6).toFixed(2) + "M";
  if (size >= 1e4) return +(x / 1e3).toFixed(1) + "k";
  return String(+x.toPrecision(4)).replace("-", "−");
};
