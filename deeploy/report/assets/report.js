"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const GUTTER = 96, LANE = 26, GAP = 6, AXIS = 20, OVERVIEW = 12;
  const WORDS = { in: "fetch", out: "store", wait: "wait for", compute: "compute", overhead: "overhead:", issue: "start", many: "" };
  const STRONG = new Set(["compute", "out"]); /* kinds of events in strong colours; labels on all others are dark */
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = '11px system-ui, "Segoe UI", Roboto, Arial, sans-serif';
  const digits = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

  function element(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function json(id) {
    const found = document.getElementById(id);
    return found ? JSON.parse(found.textContent) : null;
  }

  /* ---- hover: the titles of shapes, at once */

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);

  function tipText(target) {
    const holder = target.closest("[data-tip],[title],rect,.block");
    if (!holder) return null;
    if (holder.dataset.tip) return holder.dataset.tip;
    const title = holder.querySelector(":scope > title");
    const text = title ? title.textContent : holder.getAttribute("title");
    if (!text) return null;
    holder.dataset.tip = text; /* the browser's own, slower one would show as well */
    if (title) title.remove();
    else holder.removeAttribute("title");
    return text;
  }

  document.addEventListener("pointerover", (event) => {
    const text = event.target instanceof Element ? tipText(event.target) : null;
    tip.hidden = !text;
    if (text) tip.textContent = text;
  });
  document.addEventListener("pointermove", (event) => {
    if (tip.hidden) return;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8)) + "px";
    tip.style.top = (event.clientY + high + 24 > innerHeight ? event.clientY - high - 10 : event.clientY + 16) + "px";
  });

  /* ---- light or dark */

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  /* ---- timeline */

  class Timeline {
    constructor(box, tools, data) {
      this.box = box;
      this.data = data;
      this.output = tools.querySelector("output");
      this.from = 0;
      this.to = Math.max(1, data.cycles);
      this.lanes = data.lanes.map((_, lane) => data.events.filter((e) => e[0] === lane));
      this.svg = element("svg", { role: "img", "aria-label": "timeline" });
      box.append(this.svg);
      tools.addEventListener("click", (event) => this.act(event.target.dataset.do));
      box.addEventListener("keydown", (event) => {
        const act = { "+": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all" }[event.key];
        if (act) event.preventDefault();
        this.act(act);
      });
      box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      box.addEventListener("pointerdown", (event) => this.grab(event));
      box.addEventListener("dblclick", (event) => this.alone(event));
      new ResizeObserver(() => this.draw()).observe(box);
      this.draw();
    }

    /* rows over the lanes: the layers, and the fused groups where there are some */
    get above() {
      return this.data.groups.length ? 2 : 1;
    }

    get width() {
      return Math.max(320, this.box.clientWidth);
    }

    x(cycle) {
      return GUTTER + ((cycle - this.from) / (this.to - this.from)) * (this.width - GUTTER);
    }

    cycle(clientX) {
      const share = (clientX - this.box.getBoundingClientRect().left - GUTTER) / (this.width - GUTTER);
      return this.from + share * (this.to - this.from);
    }

    show(from, to) {
      const whole = Math.max(1, this.data.cycles), span = Math.min(whole, Math.max(20, to - from));
      this.from = Math.max(0, Math.min(from, whole - span));
      this.to = this.from + span;
      this.draw();
    }

    zoom(factor, at) {
      this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
    }

    act(what) {
      const span = this.to - this.from, middle = this.from + span / 2;
      if (what === "in") this.zoom(0.5, middle);
      if (what === "out") this.zoom(2, middle);
      if (what === "left") this.show(this.from - span / 4, this.to - span / 4);
      if (what === "right") this.show(this.from + span / 4, this.to + span / 4);
      if (what === "all") this.show(0, this.data.cycles);
    }

    wheel(event) {
      /* Over a page that scrolls, the wheel is the timeline's only when it was clicked before. */
      if (!event.ctrlKey && document.activeElement !== this.box) return;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const move = ((event.deltaX || event.deltaY) / (this.width - GUTTER)) * (this.to - this.from);
        this.show(this.from + move, this.to + move);
      } else {
        this.zoom(Math.exp(event.deltaY * 0.002), this.cycle(event.clientX));
      }
      event.preventDefault();
    }

    grab(down) {
      const from = this.from, to = this.to, per = (to - from) / (this.width - GUTTER);
      const move = (event) => {
        this.box.classList.add("moving");
        this.show(from - (event.clientX - down.clientX) * per, to - (event.clientX - down.clientX) * per);
      };
      const drop = () => {
        this.box.classList.remove("moving");
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", drop);
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", drop);
    }

    alone(event) {
      const at = this.cycle(event.clientX);
      const call = this.data.calls.find((c) => c.start <= at && at < c.end);
      if (call) this.show(call.start - (call.end - call.start) * 0.02, call.end + (call.end - call.start) * 0.02);
    }

    draw() {
      const width = this.width, rows = this.data.lanes.length + this.above;
      const height = AXIS + rows * (LANE + GAP) + OVERVIEW + 4;
      const parts = [];
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.setAttribute("height", height);
      this.axis(parts, height);
      this.calls(parts);
      this.groups(parts);
      this.data.lanes.forEach((name, lane) => this.lane(parts, name, lane));
      const y = height - OVERVIEW, scale = (width - GUTTER) / Math.max(1, this.data.cycles);
      parts.push(element("rect", { class: "lane", x: GUTTER, y, width: width - GUTTER, height: OVERVIEW - 2, rx: 3 }));
      const left = GUTTER + this.from * scale, wide = Math.max(3, (this.to - this.from) * scale);
      parts.push(element("rect", { class: "overview", x: left, y, width: wide, height: OVERVIEW - 2, rx: 3 }));
      this.svg.replaceChildren(...parts);
      const time = (n) => (n / this.data.mhz).toFixed(n / this.data.mhz < 100 ? 2 : 0) + " µs";
      this.output.textContent = `${digits(this.from)} to ${digits(this.to)} cycles · ${time(this.to - this.from)}`;
    }

    axis(parts, height) {
      const span = this.to - this.from;
      let unit = 1;
      for (let n = 0; span / unit > this.width / 110; n++) unit = [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3);
      for (let at = Math.ceil(this.from / unit) * unit; at <= this.to; at += unit) {
        const x = this.x(at);
        parts.push(element("line", { class: "grid", x1: x, x2: x, y1: AXIS - 4, y2: height - OVERVIEW - 4 }));
        if (x < this.width - 20) parts.push(element("text", { class: "tick", x, y: 12, "text-anchor": "middle" }, digits(at)));
      }
    }

    /* As much of a text as fits: its end, in which names differ. */
    label(parts, text, x, width, y, look = "") {
      const room = width - 10, fits = (shown) => pen.measureText(shown).width <= room;
      if (room < 14) return;
      let from = 0;
      const shown = () => (from ? "…" + text.slice(from) : text);
      while (from < text.length && !fits(shown())) from++;
      if (text.length - from > 1) parts.push(element("text", { class: `label ${look}`, x: x + 4, y: y + LANE / 2 + 4 }, shown()));
    }

    calls(parts) {
      const y = AXIS;
      parts.push(element("text", { class: "tick", x: 0, y: y + LANE / 2 + 4 }, "layers"));
      this.data.calls.forEach((call, step) => {
        if (call.end < this.from || call.start > this.to) return;
        const x = Math.max(GUTTER, this.x(call.start)), end = Math.min(this.width, this.x(call.end));
        if (end - x < 0.3) return;
        const rect = element("rect", { class: `call call${step % 2}`, x, y, width: end - x, height: LANE, rx: 2 });
        rect.append(element("title", {}, `${call.name}\nstep ${step}, ${digits(call.end - call.start)} cycles from ${digits(call.start)} on`));
        parts.push(rect);
        const before = parts.length;
        this.label(parts, call.name, x, end - x, y);
        if (parts.length > before) parts[before].setAttribute("class", "");
      });
    }

    groups(parts) {
      if (!this.data.groups.length) return;
      const y = AXIS + LANE + GAP;
      parts.push(element("text", { class: "tick", x: 0, y: y + LANE / 2 + 4 }, "fused"));
      for (const [first, last, tiles] of this.data.groups) {
        const { start } = this.data.calls[first], { end } = this.data.calls[last];
        const left = Math.max(GUTTER, this.x(start)), right = Math.min(this.width, this.x(end));
        if (right - left < 0.3) continue;
        const rect = element("rect", { class: "group", x: left, y, width: right - left, height: LANE, rx: 2 });
        const names = `${this.data.calls[first].name} to ${this.data.calls[last].name}`;
        const about = `${last - first + 1} layers computed together, ${tiles} tiles`;
        rect.append(element("title", {}, `${names}\n${about}\n${digits(end - start)} cycles from ${digits(start)} on`));
        parts.push(rect);
        this.label(parts, about, left, right - left, y);
      }
    }

    lane(parts, name, lane) {
      const y = AXIS + (lane + this.above) * (LANE + GAP);
      parts.push(element("text", { class: "tick", x: 0, y: y + LANE / 2 + 4 }, name));
      parts.push(element("rect", { class: "lane", x: GUTTER, y, width: this.width - GUTTER, height: LANE, rx: 3 }));
      let drawn = -1;
      for (const event of this.lanes[lane]) {
        const [, kind, start, cycles] = event;
        if (start + cycles < this.from) continue;
        if (start > this.to) break;
        const x = Math.max(GUTTER, this.x(start)), end = Math.min(this.width, this.x(start + cycles));
        if (end < drawn + 0.5) continue;
        const left = Math.max(x, drawn);
        drawn = Math.max(end, left + 0.7);
        const rect = element("rect", { class: `event event-${this.data.kinds[kind]}`, x: left, y, width: drawn - left, height: LANE });
        rect.append(element("title", {}, this.about(event)));
        parts.push(rect);
        if (this.data.kinds[kind] !== "wait") this.label(parts, this.data.labels[event[6]], x, end - x, y, STRONG.has(this.data.kinds[kind]) ? "strong" : "bright");
      }
    }

    about([, kind, start, cycles, step, owner, label, tile, bytes]) {
      const { kinds, labels, calls, mhz } = this.data;
      const lines = [`${WORDS[kinds[kind]]} ${labels[label]}`.trim()];
      lines.push(`${owner === step ? "" : "for "}${calls[owner].name}${tile >= 0 ? `, tile ${tile}` : ""}`);
      lines.push(`${digits(cycles)} cycles (${(cycles / mhz).toFixed(2)} µs) from ${digits(start)} on`);
      if (bytes) lines.push(`${digits(bytes)} bytes`);
      return lines.join("\n");
    }
  }

  /* ---- tables */

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) =>
      head.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "ascending";
        const value = (row) => {
          const cell = row.cells[column];
          const text = cell.dataset.v ?? cell.textContent;
          return cell.dataset.v || cell.className === "n" ? Number(text.replace(/[^\d.]/g, "")) : text;
        };
        const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
        body.querySelectorAll("tr.why, tr.group").forEach((row) => row.remove());
        const rows = [...body.rows].sort((a, b) => (up ? order(value(b), value(a)) : order(value(a), value(b))));
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "descending" : "ascending");
        body.append(...rows);
      })
    );
  }

  function line(parent, name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    parent.append(made);
    return made;
  }

  function explain(cell, call, levels) {
    for (const reason of call.reasons) line(cell, "div", reason);
    line(cell, "h4", "Operands");
    const operands = line(cell, "table");
    for (const operand of call.operands) {
      const row = line(operands, "tr");
      for (const text of [operand.name, operand.tensor, operand.where]) line(row, "td", text);
    }
    line(cell, "h4", `Candidates (${call.considered} were considered)`);
    const ways = line(cell, "table"), head = line(ways, "tr");
    const taken = levels.map((_, hop) => hop).filter((hop) => call.candidates.some((way) => way.bytes[hop]));
    const compared = new Set(call.candidates.map((way) => way.kernel)).size > 1;
    for (const text of [...(compared ? ["kernel"] : []), "tiles", "buffers", "operands in", ...taken.map((hop) => `bytes in ${levels[hop]}`), "cycles", ""]) {
      line(head, "th", text);
    }
    for (const way of call.candidates) {
      const row = line(ways, "tr", undefined, way.chosen ? "chosen" : "");
      const texts = [...(compared ? [`${way.kernel} on ${way.engine}`] : []), way.loops, way.is_double ? "two" : "one", way.sources, ...taken.map((hop) => digits(way.bytes[hop])), digits(way.cycles), way.verdict];
      for (const text of texts) line(row, "td", text);
    }
  }

  /* JSON that was compressed, see markup.packed; unpacked when it is first asked for. */
  function packed(id) {
    const found = document.getElementById(id);
    let promise;
    return found && (() => (promise ??= unpack(found.textContent)));
  }

  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  }

  function toggle(row, reasons) {
    if (row.nextElementSibling && row.nextElementSibling.className === "why") return row.nextElementSibling.remove();
    const added = document.createElement("tr");
    added.className = "why";
    const cell = line(added, "td");
    cell.colSpan = row.cells.length;
    const shown = line(cell, "div");
    row.after(added);
    reasons().then((found) => explain(shown, found.calls[Number(row.dataset.step)], found.levels));
  }

  /* ---- rows of large networks: a filter, groups that fold, arrow keys */

  function arrange(table, tools) {
    const body = table.tBodies[0], rows = [...body.rows], field = tools.querySelector("input"), choice = tools.querySelector("select");
    const columns = table.tHead.rows[0].cells.length, open = new Set();
    const cyclesOf = (list) => list.reduce((sum, row) => sum + Number(row.dataset.cycles || 0), 0);
    const whole = cyclesOf(rows);
    const keyOf = (row) => row.dataset[choice.value];
    const title = (key, list) => {
      if (choice.value !== "block") return key;
      const count = new Set(list.map((row) => row.dataset.block)).size;
      return `${count} equal blocks of ${list.length / count} layers, steps ${list[0].dataset.step} to ${list[list.length - 1].dataset.step}`;
    };
    function header(key, list) {
      const row = document.createElement("tr");
      row.className = "group";
      row.tabIndex = 0;
      row.setAttribute("aria-expanded", String(open.has(key)));
      const cell = line(row, "td", `${open.has(key) ? "▾" : "▸"} ${title(key, list)}`);
      cell.colSpan = columns;
      const cycles = cyclesOf(list);
      const share = whole ? `, ${digits(cycles)} cycles, ${((100 * cycles) / whole).toFixed(1)} %` : "";
      line(cell, "small", ` ${list.length} layers${share}`);
      row.addEventListener("click", () => {
        if (!open.delete(key)) open.add(key);
        draw();
        [...body.rows].find((other) => other.dataset.key === key).focus();
      });
      row.dataset.key = key;
      return row;
    }
    function draw() {
      const wanted = field.value.trim().toLowerCase();
      const shown = rows.filter((row) => !wanted || `${row.textContent} ${row.cells[1].title} ${row.cells[1].dataset.tip}`.toLowerCase().includes(wanted));
      const placed = [];
      if (!choice.value || wanted) placed.push(...shown);
      else {
        const groups = new Map();
        for (const row of shown) {
          const key = choice.value === "block" ? (row.dataset.block === undefined ? `step ${row.dataset.step}` : "blocks") : keyOf(row);
          if (!groups.has(key)) groups.set(key, []);
          groups.get(key).push(row);
        }
        for (const [key, list] of groups) {
          if (choice.value === "block" && key !== "blocks") placed.push(...list);
          else placed.push(header(key, list), ...(open.has(key) ? list : choice.value === "block" ? list.filter((row) => row.dataset.block === "0") : []));
        }
      }
      body.replaceChildren(...placed);
      tools.querySelector("output").textContent = shown.length < rows.length ? `${shown.length} of ${rows.length} layers` : "";
      roving(body, "tr[data-step], tr.group");
    }
    field.addEventListener("input", draw);
    choice.addEventListener("change", draw);
    if (rows.length > 40 && choice.querySelector("[value=block]")) choice.value = "block";
    draw();
  }

  /* One of several things can be reached by the tabulator, the others from there by arrows; Enter is a click. */
  function roving(holder, selector) {
    const items = [...holder.querySelectorAll(selector)];
    items.forEach((item, number) => item.setAttribute("tabindex", number ? "-1" : "0"));
    if (holder.dataset.roves) return;
    holder.dataset.roves = "yes";
    holder.addEventListener("keydown", (event) => {
      const item = event.target.closest(selector);
      if (!item || event.target !== item) return;
      const now = [...holder.querySelectorAll(selector)], at = now.indexOf(item);
      const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: now.length - 1 }[event.key];
      if (event.key === "Enter" || event.key === " ") item.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      else if (to === undefined || !now[to]) return;
      else {
        item.setAttribute("tabindex", "-1");
        now[to].setAttribute("tabindex", "0");
        now[to].focus();
      }
      event.preventDefault();
    });
  }

  document.addEventListener("focusin", (event) => {
    const block = event.target instanceof Element && event.target.matches("g.block") ? event.target : null;
    const text = block && tipText(block.querySelector("rect") ?? block);
    if (!text) return;
    tip.textContent = text;
    tip.hidden = false;
    const box = block.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, box.bottom + tip.offsetHeight + 8 > innerHeight ? box.top - tip.offsetHeight - 6 : box.bottom + 6) + "px";
  });
  document.addEventListener("focusout", () => (tip.hidden = true));

  for (const svg of document.querySelectorAll("svg.map, .graph svg")) roving(svg, "g.block");

  for (const article of document.querySelectorAll("article[data-network]")) {
    const name = article.dataset.network;
    const events = json(`timeline-data-${name}`), reasons = packed(`explain-data-${name}`);
    if (events) new Timeline(document.getElementById(`timeline-${name}`), article.querySelector(".tools:not(.rows)"), events);
    const table = document.getElementById(`layers-${name}`);
    sortable(table);
    arrange(table, article.querySelector(".tools.rows"));
    if (reasons) {
      table.tBodies[0].addEventListener("click", (event) => {
        const row = event.target.closest("tr[data-step]");
        if (row) toggle(row, reasons);
      });
    }
  }
})();
