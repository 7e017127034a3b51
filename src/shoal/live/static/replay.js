"use strict";
// Replays of recorded episodes: two stages side by side, one clock, and a look into agents' heads.
shoal.Replays = class {
  static SPEEDS = [0.25, 0.5, 1, 2, 4];
  static FPS = 10;
  static FORMAT = 1; // newest format of a replay that is read

  constructor(home, slug, files) {
    const make = shoal.make;
    this.now = 0;
    this.speed = 1;
    this.playing = false;
    this.clock = 0;
    this.stages = [new shoal.Stage(this, slug, files, "before", files[0])];
    if (files.length > 1) this.stages.push(new shoal.Stage(this, slug, files, "after", files[files.length - 1]));
    this.button = make("button", { type: "button", class: "play", onclick: () => this.toggle() }, "▶ play");
    this.scrub = make("input", {
      type: "range", min: 0, max: 0, value: 0, "aria-label": "instant", class: "scrub",
      oninput: () => this.seek(Number(this.scrub.value)),
    });
    this.told = make("output", { class: "n" });
    const speed = make("select", { "aria-label": "speed", onchange: () => { this.speed = Number(speed.value); } },
      ...shoal.Replays.SPEEDS.map((x) => make("option", { value: x, selected: x === 1 }, `${x}×`)));
    this.trails = make("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    home.append(
      make("div", { class: "stages" }, ...this.stages.map((stage) => stage.element)),
      make("div", { class: "bar player" }, this.button, this.scrub, this.told, make("label", {}, "speed ", speed), make("label", {}, this.trails, " trails")),
      make("p", { class: "faint" }, "Space plays and pauses, the arrow keys step. Point at an agent, or pick it, to see what it sees and thinks."));
    home.tabIndex = -1;
    home.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(home);
    requestAnimationFrame((time) => this.tick(time));
  }

  get last() {
    return Math.max(0, ...this.stages.map((stage) => stage.length - 1));
  }

  // What every stage shows: one scale, so that they can be compared.
  get bounds() {
    const shown = this.stages.map((stage) => stage.replay).filter(Boolean);
    const ends = (name, pick) => [0, 1].map((i) => pick(...shown.map((one) => one[name][i])));
    return { low: ends("low", Math.min), high: ends("high", Math.max) };
  }

  key(event) {
    if (/^(INPUT|SELECT|BUTTON)$/.test(event.target.tagName)) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === " ") this.toggle();
    else if (step) this.seek(this.now + step);
    else return;
    event.preventDefault();
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing && this.now >= this.last) this.now = 0;
    this.button.textContent = this.playing ? "❚❚ pause" : "▶ play";
  }

  seek(instant) {
    this.now = Math.min(Math.max(instant, 0), this.last);
    this.draw();
  }

  tick(time) {
    const passed = (time - this.clock) / 1000;
    this.clock = time;
    if (this.playing) {
      const before = Math.floor(this.now);
      this.now = Math.min(this.now + Math.min(passed, 0.5) * this.speed * shoal.Replays.FPS, this.last);
      if (this.now >= this.last) this.toggle();
      if (Math.floor(this.now) !== before) this.draw();
    }
    requestAnimationFrame((next) => this.tick(next));
  }

  draw() {
    const instant = Math.floor(this.now);
    this.scrub.max = this.last;
    this.scrub.value = instant;
    this.told.textContent = `step ${instant} of ${this.last}`;
    for (const stage of this.stages) stage.draw(instant, this.trails.checked);
  }
};

// One canvas with a replay, and the thoughts of one agent beneath.
shoal.Stage = class {
  constructor(replays, slug, files, title, file) {
    const make = shoal.make;
    this.replays = replays;
    this.slug = slug;
    this.replay = null;
    this.agent = "";
    this.canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": `${title} training` });
    this.caption = make("div", { class: "caption" });
    this.mind = make("div", { class: "mind" });
    this.agents = make("select", { "aria-label": `agent, ${title}`, onchange: () => { this.agent = this.agents.value; replays.draw(); } });
    const pick = make("select", { "aria-label": `replay, ${title}`, onchange: () => this.load(pick.value) },
      ...files.map((name) => make("option", { value: name, selected: name === file }, shoal.Stage.label(name))));
    this.element = make("div", { class: "stage" }, make("div", { class: "bar" }, make("b", {}, title), pick, make("label", {}, "agent ", this.agents)), this.caption, this.canvas, this.mind);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.load(file);
  }

  static label(name) {
    const found = /^step-0*(\d+)-(\d+)\.json$/.exec(name);
    if (!found) return name;
    const episode = Number(found[2]) ? `, episode ${Number(found[2]) + 1}` : "";
    return `after ${Number(found[1]).toLocaleString("en")} steps${episode}`;
  }

  get length() {
    return this.replay?.frames.length ?? 0;
  }

  async load(file) {
    let replay;
    try {
      replay = await shoal.replay(this.slug, file);
    } catch (error) {
      this.caption.textContent = "this replay cannot be read";
      return;
    }
    if (replay.format > shoal.Replays.FORMAT) {
      this.caption.textContent = "this replay was recorded by a newer shoal: install that";
      return;
    }
    this.replay = replay;
    const names = Object.values(this.replay.teams).flat();
    this.agents.replaceChildren(...names.map((name) => shoal.make("option", { value: name }, name)));
    if (!names.includes(this.agent)) this.agent = names[0] ?? "";
    this.agents.value = this.agent;
    this.replays.draw?.call(this.replays);
  }

  // The agent nearest to the pointer, if it is near.
  point(event) {
    if (!this.replay || !this.view) return;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 24;
    for (const one of this.people(this.instant)) {
      const [px, py] = this.view.place(one.at);
      const distance = Math.hypot(px - x, py - y) - one.radius * this.view.scale;
      if (distance < least) { least = distance; best = one.name; }
    }
    if (best && best !== this.agent && [...this.agents.options].some((one) => one.value === best)) {
      this.agent = this.agents.value = best;
      this.replays.draw();
    }
  }

  shapes(instant) {
    return this.replay.frames[Math.min(instant, this.length - 1)].map((number) => this.replay.shapes[number]);
  }

  people(instant) {
    return this.shapes(instant).filter((shape) => shape.kind === "disc" && shape.name);
  }

  draw(instant, trails) {
    if (!this.length) return;
    this.instant = Math.min(instant, this.length - 1);
    const bounds = this.replays.bounds;
    const { low, high } = bounds;
    const width = this.element.clientWidth;
    const height = Math.min(width * (high[1] - low[1]) / (high[0] - low[0]), 560);
    const sharp = window.devicePixelRatio || 1;
    this.canvas.width = width * sharp;
    this.canvas.height = height * sharp;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(sharp, sharp);
    this.view = new shoal.View(pen, { ...this.replay, ...bounds }, width, height);
    const before = [];
    if (trails) for (let t = Math.max(this.instant - 14, 0); t < this.instant; t++) before.push(this.people(t));
    this.view.scene(this.shapes(this.instant), before, this.agent);
    const returns = Object.entries(this.replay.returns[this.instant] ?? {}).map(([team, x]) => {
      const dot = shoal.make("i", {});
      dot.style.background = this.view.colour(team);
      return shoal.make("span", {}, dot, `${team} ${shoal.short(x ?? 0)}`);
    });
    this.caption.replaceChildren(`step ${this.instant}`, ...returns);
    this.think();
  }

  think() {
    const team = Object.keys(this.replay.teams).find((name) => this.replay.teams[name].includes(this.agent));
    const mind = this.replay.minds[this.instant]?.[team];
    if (!mind) { this.mind.replaceChildren(); return; }
    const i = this.replay.teams[team].indexOf(this.agent);
    const colour = this.view.colour(team);
    const value = mind.values?.[i];
    const action = mind.actions?.[i];
    const parts = [shoal.make("div", { class: "who" }, shoal.make("b", {}, this.agent),
      mind.alive[i] ? "" : " is not there",
      value != null ? shoal.make("span", { class: "value" }, `expects ${shoal.short(value)}`) : "")];
    if (mind.preferences) parts.push(shoal.bars(this.replay.kinds[team], mind.preferences[i], action, colour));
    else if (Array.isArray(action)) parts.push(shoal.signed("action", action, colour));
    if (mind.observations?.[i]) parts.push(shoal.signed("observation", mind.observations[i], "#8a929a"));
    this.mind.replaceChildren(...parts);
  }
};

// A bar for each action: probabilities as they are, utilities from the least on.
shoal.bars = function (kind, values, chosen, colour) {
  const legal = values.filter((x) => x !== null);
  const low = kind === "utilities" ? Math.min(...legal) : 0;
  const span = kind === "utilities" ? Math.max(...legal) - low || 1 : 1;
  const bars = values.map((x, i) => {
    const bar = shoal.make("i", {});
    bar.style.height = x === null ? "0" : `${Math.max(4 + 92 * (x - low) / span, 3)}%`;
    if (i === chosen) bar.style.background = colour;
    const told = x === null ? `action ${i} is not allowed` : `action ${i}: ${shoal.short(x)}`;
    return shoal.make("span", { title: told, class: i === chosen ? "chosen" : "" }, bar, shoal.make("small", {}, String(i)));
  });
  return shoal.make("figure", { class: "bars" }, shoal.make("figcaption", {}, kind === "utilities" ? "utility of each action" : "probability of each action"), shoal.make("div", {}, ...bars));
};

// Numbers of either sign as small bars around a middle line.
shoal.signed = function (title, values, colour) {
  const most = Math.max(...values.map(Math.abs), 1e-9);
  const bars = values.map((x, i) => {
    const bar = shoal.make("i", { class: x < 0 ? "down" : "up" });
    bar.style.height = `${48 * Math.abs(x) / most}%`;
    bar.style.background = colour;
    return shoal.make("span", { title: `${i}: ${shoal.short(x)}` }, bar);
  });
  return shoal.make("figure", { class: "signed" }, shoal.make("figcaption", {}, `${title}, up to ±${shoal.short(most)}`), shoal.make("div", {}, ...bars));
};

// Draws the shapes of a scene, as films are drawn: things, trails, agents, outlines, speech.
shoal.View = class {
  static NIGHT = { ground: "#161b20", field: "#1f262d", ink: "#e6ebef", soft: "#98a3ac", faint: "#3a444d", landmark: "#6d7680", obstacle: "#8b95a0" };
  static DEFAULTS = { disc: "landmark", line: "faint", patch: "faint", text: "ink" };

  constructor(pen, replay, width, height) {
    this.pen = pen;
    this.colours = shoal.dark() ? { ...replay.colours, ...shoal.View.NIGHT } : replay.colours;
    const { low, high } = replay;
    this.scale = Math.min(width / (high[0] - low[0]), height / (high[1] - low[1]));
    this.left = (width - (high[0] - low[0]) * this.scale) / 2 - low[0] * this.scale;
    this.top = (height - (high[1] - low[1]) * this.scale) / 2 + high[1] * this.scale;
    this.point = (high[0] - low[0]) * this.scale / 600;
    pen.fillStyle = this.colour("ground");
    pen.fillRect(0, 0, width, height);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
  }

  place([x, y]) {
    return [this.left + x * this.scale, this.top - y * this.scale];
  }

  colour(name) {
    return this.colours[name] ?? (/^#[0-9a-f]{3,8}$/i.test(name) ? name : "#888888");
  }

  scene(shapes, before, agent) {
    const people = shapes.filter((shape) => shape.kind === "disc" && shape.name);
    for (const shape of shapes) if (!people.includes(shape)) this[shape.kind]?.(shape);
    for (const one of people) this.trail(one, before);
    for (const one of people) this.disc(one, one.name === agent);
    for (const shape of shapes) if (shape.kind === "disc" && !shape.name && !shape.hollow) this.edge(shape);
    for (const one of people) if (one.says) this.bubble(one);
    this.pen.globalAlpha = 1;
  }

  circle(x, y, r) {
    this.pen.beginPath();
    this.pen.arc(x, y, Math.max(r, 0.5), 0, 2 * Math.PI);
  }

  disc(shape, picked = false) {
    const pen = this.pen;
    const [x, y] = this.place(shape.at);
    const r = shape.radius * this.scale;
    const colour = this.colour(shape.colour ?? "landmark");
    pen.globalAlpha = shape.alpha ?? 1;
    if (picked) {
      pen.strokeStyle = this.colour("ink");
      pen.lineWidth = 2;
      this.circle(x, y, r + 4);
      pen.stroke();
    }
    this.circle(x, y, shape.hollow ? r - 1 : r);
    if (shape.hollow) {
      pen.strokeStyle = colour;
      pen.lineWidth = 2.5 * this.point;
      pen.stroke();
    } else {
      pen.fillStyle = colour;
      pen.fill();
      if (shape.name) { pen.strokeStyle = this.colour("field"); pen.lineWidth = 1.5; pen.stroke(); }
    }
    if (shape.label) this.tag(shape, x, y, r);
    pen.globalAlpha = 1;
  }

  tag(shape, x, y, r) {
    const pen = this.pen;
    pen.font = `bold ${Math.min(Math.max(r * 0.95, 9), 16)}px system-ui, sans-serif`;
    const fits = !shape.hollow && pen.measureText(shape.label).width < 1.8 * r;
    pen.fillStyle = fits ? "#ffffff" : this.colour("soft");
    if (!fits) pen.font = "11px system-ui, sans-serif";
    pen.fillText(shape.label, x, fits ? y + 0.5 : y + r + 8);
  }

  edge(shape) {
    const [x, y] = this.place(shape.at);
    this.pen.globalAlpha = 0.3 * (shape.alpha ?? 1);
    this.pen.strokeStyle = this.colour("ink");
    this.pen.lineWidth = 1.2;
    this.circle(x, y, shape.radius * this.scale);
    this.pen.stroke();
    this.pen.globalAlpha = 1;
  }

  trail(one, before) {
    const pen = this.pen;
    const past = before.map((people) => people.find((other) => other.name === one.name)).filter(Boolean);
    const places = [...past, one].map((disc) => this.place(disc.at));
    pen.strokeStyle = this.colour(one.colour ?? "landmark");
    pen.lineCap = "butt";
    for (let i = 1; i < places.length; i++) {
      const share = 1 - (places.length - 1 - i) / 14;
      pen.globalAlpha = 0.42 * share * (one.alpha ?? 1);
      pen.lineWidth = Math.max(one.radius * this.scale * 0.6 * (0.35 + 0.65 * share), 1);
      pen.beginPath();
      pen.moveTo(...places[i - 1]);
      pen.lineTo(...places[i]);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  bubble(one) {
    const pen = this.pen;
    const [x, y] = this.place(one.at);
    pen.font = "bold 13px system-ui, sans-serif";
    const width = pen.measureText(one.says).width + 14;
    const left = x + one.radius * this.scale * 0.6, top = y - one.radius * this.scale - 26;
    pen.fillStyle = this.colour("field");
    pen.strokeStyle = this.colour(one.colour ?? "ink");
    pen.lineWidth = 1.6;
    pen.beginPath();
    pen.roundRect(left, top, width, 22, 7);
    pen.fill();
    pen.stroke();
    pen.fillStyle = this.colour("ink");
    pen.fillText(one.says, left + width / 2, top + 11.5);
  }

  line(shape) {
    const pen = this.pen;
    pen.globalAlpha = shape.alpha ?? 1;
    pen.strokeStyle = this.colour(shape.colour ?? "faint");
    pen.lineWidth = Math.max((shape.width ?? 1.5) * this.point, 1);
    pen.setLineDash(shape.dashed ? [6 * this.point, 6 * this.point] : []);
    pen.beginPath();
    shape.points.forEach((point, i) => (i ? pen.lineTo(...this.place(point)) : pen.moveTo(...this.place(point))));
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  patch(shape) {
    const pen = this.pen;
    const [left, bottom] = this.place(shape.low);
    const [right, top] = this.place(shape.high);
    pen.globalAlpha = shape.alpha ?? 1;
    pen.beginPath();
    pen.roundRect(left, top, right - left, bottom - top, Math.min(6 * this.point, (right - left) / 4));
    if (shape.hollow) {
      pen.strokeStyle = this.colour(shape.colour ?? "faint");
      pen.lineWidth = 2 * this.point;
      pen.stroke();
    } else {
      pen.fillStyle = this.colour(shape.colour ?? "faint");
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  text(shape) {
    this.pen.font = `${shape.bold ? "bold " : ""}${Math.max((shape.size ?? 14) * this.point, 8)}px system-ui, sans-serif`;
    this.pen.fillStyle = this.colour(shape.colour ?? "ink");
    this.pen.fillText(shape.text, ...this.place(shape.at));
  }
};
