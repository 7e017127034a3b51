"use strict";
// The page: picking runs, keeping up with the server, and what changes by itself.
(function () {
  const page = document.documentElement;
  const runs = document.getElementById("runs");
  const compare = document.getElementById("compare");
  const state = document.getElementById("live");
  const home = document.getElementById("curves");
  const own = page.dataset.runs; // the slug of a run's own page
  const kins = new Map(); // kin -> what its runs have in common, in words
  const charts = new shoal.Charts(home, kins);
  let picked = new Set();
  let shown = 0; // page of the table

  function rows() {
    return [...document.querySelectorAll("#runs tr[data-slug]")];
  }

  function boxes() {
    return [...document.querySelectorAll('#runs input[name="run"]')];
  }

  // -- picking ------------------------------------------------------------------------------------

  const known = new Map(); // slug -> {slug, kin, name}, of all rows ever shown

  function learn() {
    for (const row of rows()) {
      const box = row.querySelector("input");
      kins.set(box.dataset.kin, box.dataset.kind);
      known.set(row.dataset.slug, { slug: row.dataset.slug, kin: box.dataset.kin, name: row.querySelector("a").textContent });
    }
  }

  function mark() {
    for (const box of boxes()) box.checked = picked.has(box.value);
    for (const all of document.querySelectorAll("#runs input.all")) {
      all.hidden = false;
      const mine = members(all);
      all.checked = mine.length > 0 && mine.every((box) => box.checked);
      all.indeterminate = !all.checked && mine.some((box) => box.checked);
    }
    document.getElementById("none").hidden = !picked.size;
  }

  function members(all) {
    const found = [];
    for (let row = all.closest("tr").nextElementSibling; row && !row.classList.contains("group"); row = row.nextElementSibling) {
      const box = row.querySelector('input[name="run"]');
      if (box) found.push(box);
    }
    return found;
  }

  let soon = 0;
  function choose(remember = true) {
    mark();
    const address = new URLSearchParams([...picked].map((slug) => ["run", slug]));
    if (remember) history.replaceState(null, "", picked.size ? `?${address}` : location.pathname);
    charts.show([...picked].map((slug) => known.get(slug)).filter(Boolean));
    clearTimeout(soon);
    soon = setTimeout(() => compared(address), 300);
  }

  let newest = ""; // what was asked for last: an answer that comes later than a newer one is dropped
  async function compared(address) {
    if (!shoal.live) return;
    newest = address;
    compare.classList.add("busy");
    if (picked.size > 1) for (const note of compare.querySelectorAll("p.faint")) note.textContent = `Comparing ${picked.size} runs …`;
    const told = await shoal.text(`compare?${address}`); // made and escaped by the server
    if (newest !== address) return;
    compare.innerHTML = told;
    compare.classList.remove("busy");
  }

  // What is shown before anybody picks: the runs that train, then others, with all their seeds.
  function beginning() {
    const asked = new URLSearchParams(location.search).getAll("run").filter((slug) => known.has(slug));
    if (asked.length) return new Set(asked);
    const ticked = boxes().filter((box) => box.checked).map((box) => box.value);
    if (ticked.length) return new Set(ticked);
    const whole = rows().filter((row) => known.get(row.dataset.slug).kin);
    const going = whole.filter((row) => row.querySelector(".pill.training"));
    const few = [...new Set([...going, ...whole].map((row) => known.get(row.dataset.slug).kin))].slice(0, 4);
    return new Set([...known.values()].filter((run) => few.includes(run.kin)).slice(0, 20).map((run) => run.slug));
  }

  // -- the table ----------------------------------------------------------------------------------

  async function table() {
    const words = document.querySelector('#choose input[name="q"]').value;
    if (!shoal.live) return hide(words);
    const focused = document.activeElement?.value;
    runs.innerHTML = await shoal.text(`table?q=${encodeURIComponent(words)}&page=${shown}`); // likewise
    learn();
    mark();
    if (focused) boxes().find((box) => box.value === focused)?.focus();
  }

  function hide(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows()) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
  }

  function listen() {
    const form = document.getElementById("choose");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter?.name === "page") shown = Number(event.submitter.value);
      table();
    });
    form.addEventListener("change", (event) => {
      const box = event.target;
      if (box.name === "q") { shown = 0; return table(); }
      const mine = box.classList.contains("all") ? members(box) : [box];
      for (const one of mine) box.checked ? picked.add(one.value) : picked.delete(one.value);
      choose();
    });
    let pause = 0;
    form.addEventListener("input", (event) => {
      if (event.target.name !== "q") return;
      clearTimeout(pause);
      pause = setTimeout(() => { shown = 0; table(); }, 200);
    });
    document.getElementById("none").addEventListener("click", () => { picked.clear(); choose(); });
    form.querySelector('[name="compare"]').hidden = true;
    form.querySelector('button[type="submit"]').hidden = true;
  }

  // -- the server's events ------------------------------------------------------------------------

  let behind = new Set(), busy = false, heard = null;
  async function catchUp() {
    if (busy) return;
    busy = true;
    try {
      while (behind.size) {
        const changed = [...behind];
        behind = new Set();
        if (runs) await table();
        else if (changed.includes(own)) document.getElementById("head").innerHTML = await shoal.text(`run/${own}/head`);
        await charts.load(changed);
        await new Promise((resolve) => setTimeout(resolve, 700));
      }
    } catch (error) {
      say("lost", "the server does not answer");
    } finally {
      busy = false;
    }
  }

  function say(kind, text) {
    state.className = `live ${kind}`;
    state.textContent = text;
  }

  function follow() {
    const events = new EventSource(shoal.root + "events");
    events.onopen = () => say("on", "live");
    events.onerror = () => say("lost", "not connected");
    events.onmessage = (event) => {
      const news = JSON.parse(event.data);
      if (heard !== null && news.version !== heard) {
        const missed = news.changed.length ? news.changed : [...known.keys(), own].filter(Boolean);
        missed.forEach((slug) => behind.add(slug));
        catchUp();
      }
      heard = news.version;
    };
  }

  if (runs) {
    learn();
    picked = beginning();
    listen();
    choose(false);
  } else {
    const kin = home.dataset.kin;
    kins.set(kin, home.dataset.kind);
    charts.show([{ slug: own, kin, name: document.querySelector("h1").textContent }]);
    const replays = document.getElementById("replays");
    if (replays) new shoal.Replays(replays, own, replays.dataset.files.split("\n"));
    // a button's answer comes with the next look: look again while a command is under way
    if (shoal.live) setInterval(async () => {
      if (/under way/.test(document.getElementById("head").textContent)) document.getElementById("head").innerHTML = await shoal.text(`run/${own}/head`);
    }, 2000);
  }
  if (shoal.live) follow();
  window.shoalCharts = charts;
})();
