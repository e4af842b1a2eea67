"use strict";
(() => {
  let data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const at = (id) => document.getElementById(id);
  // The reader's choices; they are kept when a live page redraws itself.
  const chosen = { cell: 0, relation: "", round: null, strict: 1, grouped: false, hidden: new Set(), sort: {}, open: new Set() };

  // ---- small tools --------------------------------------------------------------------------------------------

  // Text is only ever set as text: a name cannot become markup.
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "style") Object.assign(node.style, value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) node.append(child);
    }
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const theme = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const known = (value) => value !== null && value !== undefined;
  const minus = (text) => text.replace("-", "−");
  const fixed = (value, digits = 2) => (known(value) ? minus(value.toFixed(digits)) : "");
  const signed = (value, digits = 2) => (known(value) ? (value >= 0 ? "+" : "") + fixed(value, digits) : "");
  const percent = (value) => (known(value) ? `${Math.round(100 * value)} %` : "");
  const pValue = (value) => (known(value) ? (value < 0.001 ? "< 0.001" : value.toFixed(3)) : "");
  const megabytes = (value) => (known(value) ? (value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(value >= 10 ? 1 : 2)) : "");
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "figure";
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  // Title, colour and dash of a method come with the data, from `report/style.py`.
  const look = (label) => data.looks[label] || { title: label, colour: 0, dash: [] };
  const titled = (label) => look(label).title;
  const methodColour = (label) => theme(`m${look(label).colour}`);
  const WIDTH = 1.8;
  const methodDash = (label) => (look(label).dash.length ? look(label).dash.map((part) => part * WIDTH).join(" ") : null);
  // Positions as near as possible to those wanted, in the same order and at least `gap` apart.
  function apart(wanted, gap) {
    const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]), groups = [], places = [];
    for (const i of order) {
      groups.push([wanted[i], 1]);
      while (groups.length > 1 && groups.at(-1)[0] - groups.at(-2)[0] < (gap * (groups.at(-1)[1] + groups.at(-2)[1])) / 2) {
        const [upper, above] = groups.pop(), [lower, below] = groups.pop();
        groups.push([(upper * above + lower * below) / (above + below), above + below]);
      }
    }
    groups.flatMap(([middle, count]) => Array.from({ length: count }, (_, step) => middle + gap * (step - (count - 1) / 2))).forEach((place, i) => { places[order[i]] = place; });
    return places;
  }

  function download(name, kind, text) {
    const address = URL.createObjectURL(new Blob([text], { type: kind }));
    const link = h("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 2000);
  }
  const quoted = (value) => {
    const text = known(value) ? String(value) : "";
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";

  async function copy(text, button) {
    const before = button.textContent;
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      done = copyOld(text);
    }
    if (!done) return showText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1400);
  }
  function copyOld(text) {
    const area = h("textarea", { style: { position: "fixed", top: "-1000px" }, "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { done = false; }
    area.remove();
    return done;
  }
  function showText(text) {
    const area = h("textarea", { readonly: true, "aria-label": "The table as text" });
    area.value = text;
    const box = h("div", { class: "toast", role: "dialog", "aria-label": "Copy the table" },
      h("p", {}, "The browser does not allow this page to copy; select the text and copy it yourself."), area,
      h("button", { type: "button", class: "quiet", onclick: () => box.remove() }, "Close"));
    document.body.append(box);
    area.select();
  }

  const tip = at("tip");
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(6, x + 14), innerWidth - box.width - 6);
    const top = y - box.height - 12 < 4 ? y + 18 : y - box.height - 12;
    tip.style.transform = `translate(${Math.max(6, left)}px, ${top}px)`;
  }
  const hideTip = () => { tip.hidden = true; };
  document.addEventListener("scroll", hideTip, { passive: true });
  document.addEventListener("pointerover", (event) => {
    const marked = event.target.closest?.("[data-tip]");
    if (marked) showTip(marked.getAttribute("data-tip"), event.clientX, event.clientY);
    else if (!event.target.closest?.("[data-reads]")) hideTip();
  });

  // ---- frames: a card around every table and figure -----------------------------------------------------------

  const drawings = [];
  function figure(name, title, small, draw, rows, extra) {
    const place = h("div", { class: "draw" });
    const say = h("p", { class: "say", role: "status", "aria-live": "polite" });
    const file = () => slug(`${name}-${cell() ? cell().name : ""}`);
    const redraw = () => {
      const width = Math.max(260, Math.floor(place.clientWidth - parseFloat(getComputedStyle(place).paddingLeft) * 2));
      place.replaceChildren(draw(width, say));
    };
    const card = h("article", { class: "card", "data-figure": name },
      h("header", {}, h("h3", {}, title, small && h("small", {}, small)),
        h("div", { class: "tools" }, h("button", { type: "button", class: "quiet", "data-save": "svg", "aria-label": `Save as SVG: ${title}`,
          onclick: () => download(`${file()}.svg`, "image/svg+xml", svgText(place.querySelector("svg"))) }, "SVG"),
        h("button", { type: "button", class: "quiet", "data-save": "csv", "aria-label": `Save the data as CSV: ${title}`,
          onclick: () => download(`${file()}.csv`, "text/csv", csv(rows())) }, "CSV"))),
      place, extra === false ? null : say);
    drawings.push({ place, redraw });
    return card;
  }
  function svgText(svg) {
    const clone = svg.cloneNode(true);
    clone.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    for (const left of clone.querySelectorAll("[data-transient]")) left.remove();
    clone.prepend(s("rect", { width: "100%", height: "100%", fill: theme("card") }));
    return new XMLSerializer().serializeToString(clone);
  }
  const canvas = (width, height, label, ...children) => s("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label,
    "font-family": "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif", "font-size": 12, fill: theme("ink"),
  }, ...children);
  const halo = () => ({ stroke: theme("card"), "stroke-width": 5, "paint-order": "stroke" });
  const word = (x, y, text, attributes) => s("text", { x, y, ...attributes }, text);

  // columns: {head, text: whether it is text, value: the sort key, show: the displayed content, mark: CSS class}
  function table(name, title, small, columns, rows) {
    const body = h("tbody");
    const shown = (column, row) => { const value = (column.show || column.value)(row); return value instanceof Node ? value.textContent : known(value) ? String(value) : ""; };
    let order = [...rows];
    const heads = columns.map((column, index) => h("th", { scope: "col", class: column.text ? "text" : null, title: column.title },
      h("button", { type: "button", onclick: () => { const now = chosen.sort[name]; chosen.sort[name] = { index, down: now && now.index === index ? !now.down : !column.text }; arrange(); } }, column.head)));
    function arrange() {
      const by = chosen.sort[name];
      order = [...rows];
      heads.forEach((head, index) => (by && by.index === index ? head.setAttribute("aria-sort", by.down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
      if (by && columns[by.index]) {
        const value = columns[by.index].value;
        order.sort((a, b) => {
          const one = value(a), two = value(b);
          if (!known(one) || !known(two)) return known(two) - known(one);
          const way = typeof one === "string" ? one.localeCompare(two, "en", { numeric: true }) : one - two;
          return by.down ? -way : way;
        });
      }
      body.replaceChildren(...order.map((row, place) => h("tr", { class: !by && place && row.cell !== order[place - 1].cell ? "first" : null },
        columns.map((column, index) => h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: [column.text ? "text" : "", column.mark ? column.mark(row) : "", index === 0 && !by && place && row.cell && row.cell === order[place - 1].cell ? "again" : ""].join(" ").trim() || null, title: index === 0 ? shown(column, row) : null }, (column.show || column.value)(row) ?? "")))));
    }
    arrange();
    const text = () => [columns.map((column) => column.head), ...order.map((row) => columns.map((column) => shown(column, row)))].map((line) => line.map((one) => one.replace(/\s+/g, " ")).join("\t")).join("\n") + "\n";
    return h("article", { class: "card", "data-table": name },
      h("header", {}, h("h3", {}, title, small && h("small", {}, small)),
        h("button", { type: "button", class: "quiet", "data-copy": true, "aria-label": `Copy the table: ${title}`, onclick: (event) => copy(text(), event.currentTarget) }, "Copy")),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body)));
  }
  const stroke = (label, x1, x2, y) => s("line", { x1, x2, y1: y, y2: y, stroke: methodColour(label), "stroke-width": WIDTH + 0.6, "stroke-dasharray": methodDash(label) });
  const methodWord = (label) => h("span", {}, s("svg", { class: "swatch", viewBox: "0 0 22 10", width: 22, height: 10, "aria-hidden": "true" }, stroke(label, 0, 22, 5)), titled(label));
  const verdict = (value) => (known(value) ? (value ? "✓ yes" : "✗ no") : "");

  // ---- summary ------------------------------------------------------------------------------------------------

  function facts() {
    const lines = data.tables.flatMap((one) => one.lines);
    const beside = lines.filter((line) => known(line.reached) && line.finished);
    const open = data.runs.filter((run) => !run.finished).length;
    const seeds = new Set(data.runs.map((run) => run.seed)).size;
    const shown = [[data.runs.length, data.runs.length === 1 ? "run" : "runs"], [data.methods.length, data.methods.length === 1 ? "method" : "methods"], [data.cells.length, data.cells.length === 1 ? "cell" : "cells"], [seeds, seeds === 1 ? "seed" : "seeds"]];
    if (open) shown.push([open, "unfinished"]);
    if (beside.length) shown.push([`${beside.filter((line) => line.reached).length} of ${beside.length}`, "ours ≥ paper"]);
    at("facts").replaceChildren(...shown.map(([value, name]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
    const tasks = data.tables.map((one) => `${one.task.replace("-", " ")} (${one.metric})`);
    at("lead").textContent = `${tasks.join(" and ")[0].toUpperCase()}${tasks.join(" and ").slice(1)} on ${data.cells.length === 1 ? data.cells[0].name : plural(data.cells.length, "division") + " of " + plural(new Set(data.cells.map((one) => one.dataset)).size, "graph")}.`;
    at("foot").textContent = `Written by fedpub ${data.version}. A cell is a graph, the way it is divided, and the number of clients.`;
  }
  function complaints() {
    at("complaints").replaceChildren(...(data.complaints.length ? [h("section", { class: "box", "aria-labelledby": "complaints-title" },
      h("h2", { id: "complaints-title" }, "Unreadable or left out"), h("ul", {}, data.complaints.map((text) => h("li", {}, text))))] : []));
  }
  function summary() {
    const parts = [];
    if (data.tables.length > 1) parts.push(h("p", { class: "note" }, `These runs belong to ${data.tables.length} tasks with different metrics (${data.tables.map((one) => one.metric).join(", ")}). Each task has its own table; nothing is averaged across tasks.`));
    for (const one of data.tables) {
      const title = one.task.replace("-", " ").replace(/^./, (first) => first.toUpperCase());
      const columns = [
        { head: "Data", text: true, value: (line) => line.cell },
        { head: "Method", text: true, value: (line) => titled(line.method), show: (line) => methodWord(line.method) },
        { head: "State", text: true, value: (line) => line.note || "finished", mark: (line) => (line.note ? "open" : "") },
        { head: "Measured", value: (line) => line.mean, show: (line) => fixed(line.mean) + (known(line.deviation) ? `\u00a0±\u00a0${fixed(line.deviation)}` : ""), mark: (line) => (line.best ? "best" : line.finished ? "" : "open") },
        { head: "Seeds", value: (line) => line.seeds.length, show: (line) => (line.done === line.runs ? line.runs : `${line.done} of ${line.runs} done`), mark: (line) => (line.done === line.runs ? "" : "open") },
        { head: "Baseline", title: `Result of predicting without learning: ${one.baseline}`, value: (line) => line.baseline, show: (line) => fixed(line.baseline), mark: (line) => (known(line.baseline) && line.mean <= line.baseline ? "bad" : "") },
        { head: "Paper", value: (line) => line.paper, show: (line) => fixed(line.paper) },
        { head: "Difference", value: (line) => line.difference, show: (line) => signed(line.difference) },
        { head: "Ours ≥ paper", value: (line) => (known(line.reached) ? Number(line.reached) : null), show: (line) => verdict(line.reached), mark: (line) => (known(line.reached) ? (line.reached ? "good" : "bad") : "") },
        { head: "p", title: `Against ${titled(one.reference)}: two-sided paired t-test over seeds, Holm-corrected over the methods compared`, value: (line) => line.p_value, show: (line) => pValue(line.p_value) },
        { head: "Better than local", title: "Share of clients", value: (line) => line.better_than_local, show: (line) => percent(line.better_than_local) },
        { head: "Worst client", value: (line) => line.worst_client, show: (line) => fixed(line.worst_client) },
      ].filter((column) => one.lines.some((line) => (column.head === "State" ? line.note : known(column.value(line)))));
      parts.push(table(`lines-${one.task}`, title, `Test ${one.metric} in percent, mean ± deviation over seeds; bold is best in its cell, the oracle aside; baseline: ${one.baseline}; p: against ${titled(one.reference)}, Holm-corrected`, columns, one.lines));
      if (one.cells > 1 && one.averages.length) {
        const averages = [
          { head: "Method", text: true, value: (line) => titled(line.method), show: (line) => methodWord(line.method) },
          { head: "Average", value: (line) => line.mean, show: (line) => fixed(line.mean), mark: (line) => (line.best ? "best" : "") },
          { head: "Cells", value: (line) => line.cells },
          { head: "Paper", value: (line) => line.paper, show: (line) => fixed(line.paper), title: "Over the cells that the paper has" },
          { head: "Difference", value: (line) => line.difference, show: (line) => signed(line.difference), title: "Over the cells that the paper has" },
          { head: "Cells ≥ paper", value: (line) => (line.published ? line.reached / line.published : null), show: (line) => (line.published ? `${line.reached} of ${line.published}` : "") },
          { head: "p", value: (line) => line.p_value, show: (line) => pValue(line.p_value), title: `Against ${titled(one.reference)}: two-sided paired t-test over cells, Holm-corrected over the methods compared` },
        ].filter((column) => one.averages.some((line) => known(column.value(line))));
        parts.push(table(`averages-${one.task}`, "Averages over cells", `Over the ${one.averages[0].cells} cells in which all methods have finished runs; p: over these cells, against ${titled(one.reference)}; paper and difference over the cells that the paper has`, averages, one.averages));
      }
    }
    at("summary-body").replaceChildren(...parts);
  }

  // ---- sweeps -------------------------------------------------------------------------------------------------

  function sweeps() {
    at("sweep").hidden = at("sweep-link").hidden = !data.sweeps.length;
    at("sweep-body").replaceChildren(...data.sweeps.flatMap((one, index) => {
      const name = `sweep-${index}`, spread = (mean, deviation) => fixed(mean) + (known(deviation) ? `\u00a0±\u00a0${fixed(deviation)}` : "");
      const number = (text) => (text === undefined ? null : text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
      const columns = [
        { head: "Method", text: true, value: (point) => titled(point.method), show: (point) => methodWord(point.method) },
        ...one.names.map((setting) => ({ head: setting, value: (point) => number(point.settings[setting]), show: (point) => point.settings[setting] ?? "" })),
        { head: "Validation", value: (point) => point.val, show: (point) => spread(point.val, point.val_deviation), mark: (point) => (point.chosen ? "best" : "") },
        { head: "Chosen", text: true, value: (point) => Number(point.chosen), show: (point) => (point.chosen ? "✓ chosen" : ""), mark: (point) => (point.chosen ? "good" : "") },
        { head: "Test", title: "Of the chosen points only", value: (point) => point.test, show: (point) => spread(point.test, point.test_deviation) },
        { head: "Seeds", value: (point) => point.seeds.length },
        { head: "MB up", value: (point) => point.megabytes_up, show: (point) => megabytes(point.megabytes_up) },
        { head: "Seconds", value: (point) => point.seconds, show: (point) => fixed(point.seconds, 1) },
      ];
      const metric = `${one.metric[0].toUpperCase()}${one.metric.slice(1)}`, small = `${metric} in percent, mean ± deviation over seeds. ${one.complete ? "" : "Unfinished; so far: "}${one.said}`;
      const rows = () => [["method", ...one.names, "val", "val_deviation", "chosen"], ...one.points.map((point) => [point.method, ...one.names.map((setting) => point.settings[setting]), point.val, point.val_deviation, point.chosen ? "yes" : "no"])];
      return [
        one.panels.length ? figure(name, "Validation against each setting", `${metric} in percent; rings mark the chosen points${one.panels.some((panel) => Object.keys(panel.lines).length) ? ", lines the best point at each value" : ""}`, (width) => panels(one, name, width), rows, false) : "",
        table(name, `${plural(one.points.length, "point")} (${one.search})`, small, columns, one.points)];
    }));
  }
  function panels(one, name, width) {
    const labels = [...new Set(one.points.map((point) => point.method))], visible = labels.filter((label) => !chosen.hidden.has(label));
    const key = legend(width, labels, (label) => { redraw(name); document.querySelector(`[data-figure="${name}"] [data-method="${CSS.escape(label)}"]`)?.focus(); });
    const across = Math.min(one.panels.length, width >= 700 ? 2 : 1), gap = 26, left = 44, tall = 250, wide = (width - gap * (across - 1)) / across;
    const all = one.points.map((point) => point.val), low = Math.min(...all), high = Math.max(...all), pad = (high - low || 1) * 0.08;
    const y = scale(low - pad, high + pad, tall - 50, 12);
    const drawn = one.panels.map((panel, index) => {
      const place = panel.log ? Math.log10 : (value) => value, values = panel.points.map((point) => place(point[1]));
      const first = Math.min(...values), last = Math.max(...values), x = scale(first, last, left + 16, wide - 16);
      const decades = Array.from({ length: Math.ceil(last) - Math.floor(first) + 1 }, (_, i) => 10 ** (Math.floor(first) + i));
      const within = (steps) => decades.flatMap((decade) => steps.map((step) => step * decade)).filter((value) => place(value) >= first && place(value) <= last);
      const between = !panel.log ? ticks(first, last, 5) : last - first > 2 ? within([1]) : within([1, 2, 5]);
      let free = -Infinity; // names of values that would overlap are left out
      const below = (panel.ticks.length && panel.ticks.length <= 12 ? panel.ticks : between).map((value) => {
        const text = shortNumber(Number(value.toPrecision(6))), at = x(place(value)), half = 3.3 * text.length;
        if (at - half < free) return null;
        free = at + half + 6;
        return word(at, tall - 32, text, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 });
      });
      const grid = ticks(low - pad, high + pad, 5).map((value) => [s("line", { x1: left, x2: wide, y1: y(value), y2: y(value), stroke: theme("line") }), word(left - 7, y(value) + 4, shortNumber(value), { "text-anchor": "end", fill: theme("soft"), "font-size": 11 })]);
      const lines = visible.filter((label) => panel.lines[label]?.length > 1).map((label) => s("path", { "data-line": label, d: panel.lines[label].map(([value, best], i) => `${i ? "L" : "M"}${x(place(value)).toFixed(1)} ${y(best).toFixed(1)}`).join(""), fill: "none", stroke: methodColour(label), "stroke-width": WIDTH, "stroke-dasharray": methodDash(label) }));
      const marks = panel.points.filter(([label]) => visible.includes(label)).map(([label, value, val, best, text]) => s("g", { "data-tip": `${text}: ${fixed(val)}${best ? ", chosen" : ""}`, "data-point": label },
        best && s("circle", { cx: x(place(value)), cy: y(val), r: 8, fill: "none", stroke: theme("ink"), "stroke-width": 1.5, "data-chosen": label }), s("circle", { cx: x(place(value)), cy: y(val), r: 4, fill: methodColour(label) })));
      return s("g", { transform: `translate(${(index % across) * (wide + gap)},${key.height + Math.floor(index / across) * tall})`, "data-panel": panel.name, "data-scale": panel.log ? "log" : "linear" }, grid, below, lines, marks, word((left + wide) / 2, tall - 12, panel.name + (panel.log ? " (logarithmic)" : ""), { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
    });
    return canvas(width, key.height + Math.ceil(one.panels.length / across) * tall, `Validation ${one.metric} against ${one.panels.map((panel) => panel.name).join(", ")}`, key.node, drawn);
  }

  // ---- axes ---------------------------------------------------------------------------------------------------

  function ticks(low, high, count) {
    const rough = (high - low || 1) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 2.5, 5, 10].find((one) => one * power >= rough);
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(10)));
    return found;
  }
  const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  const shortNumber = (value) => minus(String(value));

  function legend(width, labels, again) {
    let x = 0, y = 14;
    const marks = labels.map((label) => {
      const wide = 40 + titled(label).length * 6.9;
      if (x && x + wide > width) { x = 0; y += 24; }
      const off = chosen.hidden.has(label);
      const toggle = () => { if (off) chosen.hidden.delete(label); else chosen.hidden.add(label); again(label); };
      const mark = s("g", { transform: `translate(${x},${y})`, role: "button", tabindex: 0, "aria-pressed": String(!off), "aria-label": `Show ${titled(label)}`, "data-method": label, cursor: "pointer", opacity: off ? 0.4 : 1, onclick: toggle, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } } },
        s("rect", { x: 0, y: -14, width: wide - 8, height: 20, fill: "transparent" }),
        stroke(label, 0, 22, -4), word(28, 0, titled(label)));
      x += wide;
      return mark;
    });
    return { node: s("g", {}, marks), height: y + 12 };
  }

  // ---- convergence --------------------------------------------------------------------------------------------

  const cell = () => data.cells[chosen.cell];
  function convergence() {
    const here = cell(), labels = Object.keys(here.curves);
    if (!labels.length) return at("convergence-body").replaceChildren(h("p", { class: "note" }, "No run of this cell has a complete round that can be read."));
    const kinds = [["val", "Validation"], ["test", "Test"]];
    const rows = () => [["method", "round", "val_mean", "val_deviation", "test_mean", "test_deviation"], ...labels.flatMap((label) => { const one = here.curves[label]; return one.rounds.map((round, i) => [label, round, one.val.mean[i], one.val.deviation[i], one.test.mean[i], one.test.deviation[i]]); })];
    function draw(width, say) {
      const key = legend(width, labels, (label) => { redraw("convergence"); document.querySelector(`[data-figure="convergence"] [data-method="${CSS.escape(label)}"]`)?.focus(); });
      const side = width >= 700, gap = 26, left = 38, tall = side ? 290 : 220;
      const wide = side ? (width - gap) / 2 : width;
      const visible = labels.filter((label) => !chosen.hidden.has(label));
      const ends = (visible.length ? visible : labels).flatMap((label) => kinds.flatMap(([kind]) => here.curves[label][kind].mean.flatMap((value, i) => (known(value) ? [value - (here.curves[label][kind].deviation[i] || 0), value + (here.curves[label][kind].deviation[i] || 0)] : []))));
      const last = Math.max(...labels.map((label) => here.curves[label].rounds.at(-1)), 2);
      const low = ends.length ? Math.max(0, Math.min(...ends)) : 0, high = ends.length ? Math.min(100, Math.max(...ends)) : 100, pad = (high - low || 10) * 0.05;
      const height = key.height + (side ? tall : 2 * tall + 8);
      const panels = kinds.map(([kind, title], index) => {
        const x0 = side ? index * (wide + gap) : 0, y0 = key.height + (side ? 0 : index * (tall + 8));
        // Names at the ends of the lines, if they leave enough room for the lines.
        const longest = Math.max(...visible.map((label) => titled(label).length), 0), named = (index || !side) && 6.6 * longest < wide / 3;
        const right = named ? wide - 22 - 6.6 * longest : wide - 8;
        const x = scale(1, last, left, right), y = scale(low - pad, high + pad, tall - 34, 26);
        const guide = s("line", { y1: 26, y2: tall - 34, stroke: theme("soft"), "stroke-dasharray": "3 3", visibility: "hidden", "data-transient": true });
        const read = (round) => {
          guide.setAttribute("x1", x(round)); guide.setAttribute("x2", x(round)); guide.setAttribute("visibility", "visible");
          const lines = visible.map((label) => { const one = here.curves[label], i = one.rounds.indexOf(round); return i < 0 || !known(one[kind].mean[i]) ? null : [one[kind].mean[i], `${titled(label)} ${fixed(one[kind].mean[i])}${known(one[kind].deviation[i]) ? ` ± ${fixed(one[kind].deviation[i])}` : ""}`]; }).filter(Boolean);
          return `Round ${round}, ${title.toLowerCase()}\n${lines.sort((a, b) => b[0] - a[0]).map((line) => line[1]).join("\n")}`;
        };
        const rounds = [...new Set(labels.flatMap((label) => here.curves[label].rounds))].sort((a, b) => a - b);
        const nearest = (event) => { const box = surface.getBoundingClientRect(); const value = 1 + ((event.clientX - box.left) / box.width) * (last - 1); return rounds.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a)); };
        let current = rounds.length - 1;
        const move = (event) => { const round = nearest(event); current = rounds.indexOf(round); showTip(read(round), event.clientX, event.clientY); };
        const surface = s("rect", { x: left, y: 26, width: right - left, height: tall - 60, fill: "transparent", tabindex: 0, role: "slider", "aria-label": `${title} by round`, "aria-valuemin": 1, "aria-valuemax": last, "aria-valuenow": rounds[current], "data-reads": true, onpointermove: move, onpointerdown: move,
          onpointerleave: () => { guide.setAttribute("visibility", "hidden"); hideTip(); },
          onblur: () => guide.setAttribute("visibility", "hidden"),
          onkeydown: (event) => { const step = { ArrowLeft: -1, ArrowRight: 1, Home: -rounds.length, End: rounds.length }[event.key]; if (!step) return; event.preventDefault(); current = Math.min(rounds.length - 1, Math.max(0, current + step)); surface.setAttribute("aria-valuenow", rounds[current]); say.textContent = read(rounds[current]).replaceAll("\n", " · "); } });
        const grid = ticks(low - pad, high + pad, 5).map((value) => [s("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: theme("line") }), word(left - 7, y(value) + 4, shortNumber(value), { "text-anchor": "end", fill: theme("soft"), "font-size": 11 })]);
        const below = ticks(1, last, wide < 420 ? 4 : 6).filter((value) => Number.isInteger(value) && value > 1 + last / 20).concat([1]).map((value) => word(x(value), tall - 16, value, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
        const lines = visible.map((label) => {
          const one = here.curves[label], curve = one[kind];
          const points = one.rounds.map((round, i) => [x(round), curve.mean[i], curve.deviation[i] || 0]).filter((point) => known(point[1]));
          if (!points.length) return null;
          const path = (list, first = "M") => list.map((point, i) => `${i ? "L" : first}${point[0].toFixed(1)} ${point[1].toFixed(1)}`).join("");
          const upper = points.map((point) => [point[0], y(point[1] + point[2])]), lower = points.map((point) => [point[0], y(point[1] - point[2])]).reverse();
          const middle = points.map((point) => [point[0], y(point[1])]);
          return s("g", { "data-line": label },
            points.some((point) => point[2]) && s("path", { d: `${path(upper)}${path(lower, "L")}Z`, fill: methodColour(label), opacity: 0.13 }),
            points.length === 1 ? s("circle", { cx: middle[0][0], cy: middle[0][1], r: 3, fill: methodColour(label) }) : s("path", { d: path(middle), fill: "none", stroke: methodColour(label), "stroke-width": WIDTH, "stroke-dasharray": methodDash(label), "stroke-linejoin": "round" }));
        });
        const tips = named ? visible.map((label) => { const one = here.curves[label], i = one[kind].mean.findLastIndex(known); return i < 0 ? null : { label, x: x(one.rounds[i]), y: y(one[kind].mean[i]) }; }).filter(Boolean) : [];
        const names = apart(tips.map((tip) => tip.y), 13).map((place, i) => s("g", { "data-end": tips[i].label }, s("path", { d: `M${tips[i].x} ${tips[i].y}L${right + 12} ${place}`, stroke: methodColour(tips[i].label), "stroke-width": 0.6 }), word(right + 15, place + 4, titled(tips[i].label), { fill: methodColour(tips[i].label), "font-size": 11.5 })));
        return s("g", { transform: `translate(${x0},${y0})` }, word(left, 14, title, { "font-weight": 600 }), grid, below, word((left + right) / 2, tall - 1, "round", { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }), lines, names, guide, surface);
      });
      return canvas(width, height, `Convergence on ${here.name}: validation and test ${here.metric} per round for ${labels.map(titled).join(", ")}`, key.node, panels);
    }
    at("convergence-body").replaceChildren(figure("convergence", `${here.metric[0].toUpperCase()}${here.metric.slice(1)} per round`, `${here.name}; in percent`, draw, rows));
  }

  // ---- clients against local ----------------------------------------------------------------------------------

  function clients() {
    const here = cell(), labels = Object.keys(here.gains);
    if (!labels.length) return at("clients-body").replaceChildren(h("p", { class: "note" }, "No method of this cell has a local run with the same data and seed to compare with: run the method local as well."));
    const marks = Object.fromEntries(labels.map((label) => [label, here.gains[label].flatMap((one) => one.gains.map((gain, client) => ({ seed: one.seed, client, gain }))).filter((mark) => known(mark.gain))]));
    const rows = () => [["method", "seed", "client", "gain_over_local"], ...labels.flatMap((label) => marks[label].map((mark) => [label, mark.seed, mark.client, mark.gain]))];
    function draw(width) {
      const all = labels.flatMap((label) => marks[label].map((mark) => mark.gain)).concat([0]);
      const low = Math.min(...all), high = Math.max(...all), pad = (high - low || 1) * 0.05;
      const longest = Math.max(...labels.map((label) => titled(label).length)), narrow = width < Math.max(560, 24 * longest), left = narrow ? 8 : 24 + 7.8 * longest, row = narrow ? 78 : 62, head = narrow ? 24 : 6;
      const height = labels.length * row + 46, x = scale(low - pad, high + pad, left, width - (narrow ? 10 : 96));
      const biggest = Math.max(...labels.flatMap((label) => marks[label].map((mark) => mark.client)), 1);
      const grid = ticks(low - pad, high + pad, narrow ? 4 : 7).map((value) => [s("line", { x1: x(value), x2: x(value), y1: 0, y2: height - 40, stroke: value === 0 ? theme("ink") : theme("line"), "stroke-width": value === 0 ? 1.2 : 1 }), word(x(value), height - 24, signed(value, 0) === signed(value, 2) ? value : (value > 0 ? "+" : "") + shortNumber(value), { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 })]);
      const lines = labels.map((label, index) => {
        const own = marks[label], top = index * row, better = own.filter((mark) => mark.gain > 0).length;
        const share = own.length ? `${Math.round((100 * better) / own.length)} % gain` : "";
        return s("g", {},
          index > 0 && s("line", { x1: 0, x2: width, y1: top, y2: top, stroke: theme("line") }),
          word(narrow ? 8 : left - 12, narrow ? top + 17 : top + row / 2 + 4, titled(label), { "text-anchor": narrow ? "start" : "end", "font-weight": 600, ...halo() }),
          word(width - 4, narrow ? top + 17 : top + row / 2 + 4, share, { "text-anchor": "end", fill: theme("soft"), ...halo() }),
          own.length && s("line", { x1: x(mean(own.map((mark) => mark.gain))), x2: x(mean(own.map((mark) => mark.gain))), y1: top + head, y2: top + row - 6, stroke: theme("ink"), "stroke-width": 2, "data-tip": `${titled(label)}: mean ${signed(mean(own.map((mark) => mark.gain)))} points` }),
          own.map((mark) => {
            const cx = x(mark.gain), cy = top + head + 7 + (mark.client / biggest) * (row - head - 20);
            const text = `${titled(label)}, client ${mark.client}, seed ${mark.seed}: ${signed(mark.gain)} points`;
            return mark.gain > 0
              ? s("circle", { cx, cy, r: 4.2, fill: theme("good"), "fill-opacity": 0.75, "data-tip": text, "data-client": mark.client })
              : s("path", { d: `M${cx} ${cy - 5}l5 5l-5 5l-5 -5Z`, fill: mark.gain < 0 ? theme("card") : theme("soft"), stroke: mark.gain < 0 ? theme("bad") : theme("soft"), "stroke-width": 1.4, "data-tip": text, "data-client": mark.client });
          }));
      });
      return canvas(width, height, `Gain of every client over local training on ${here.name}, for ${labels.map(titled).join(", ")}`, grid, lines, word((left + width - (narrow ? 10 : 96)) / 2, height - 5, `${here.metric} over local, points`, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
    }
    const lines = labels.filter((label) => marks[label].length).map((method) => {
      const own = marks[method], values = own.map((mark) => mark.gain), worst = own.reduce((a, b) => (b.gain < a.gain ? b : a));
      return { method, count: own.length, better: values.filter((value) => value > 0).length, worse: values.filter((value) => value < 0).length, mean: mean(values), most: Math.max(...values), worst };
    });
    const columns = [
      { head: "Method", text: true, value: (line) => titled(line.method), show: (line) => methodWord(line.method) },
      { head: "Share better", value: (line) => line.better / line.count, show: (line) => percent(line.better / line.count) },
      { head: "Gain", value: (line) => line.better }, { head: "Lose", value: (line) => line.worse }, { head: "Clients × seeds", value: (line) => line.count },
      { head: "Mean", value: (line) => line.mean, show: (line) => signed(line.mean), mark: (line) => (line.mean > 0 ? "good" : line.mean < 0 ? "bad" : "") },
      { head: "Highest", value: (line) => line.most, show: (line) => signed(line.most) },
      { head: "Lowest", value: (line) => line.worst.gain, show: (line) => signed(line.worst.gain) },
      { head: "Lowest at", text: true, value: (line) => `client ${line.worst.client}, seed ${line.worst.seed}` },
    ];
    at("clients-body").replaceChildren(figure("gains", "Gain over local, client by client", here.name, draw, rows, false), table("gains", "Better and worse than local", `${here.name}; in points of ${here.metric}`, columns, lines));
  }

  // ---- similarity: heat map and communities -------------------------------------------------------------------

  const unpacked = new WeakMap();
  function matrices(relation) {
    if (!unpacked.has(relation)) {
      const raw = atob(relation.values), size = relation.clients ** 2, all = [];
      for (let shot = 0; shot < relation.rounds.length; shot++) {
        const values = new Float64Array(size);
        for (let i = 0; i < size; i++) {
          const place = 2 * (shot * size + i), step = raw.charCodeAt(place) + 256 * raw.charCodeAt(place + 1);
          values[i] = step === 65535 ? NaN : relation.low + (step / 65534) * (relation.high - relation.low);
        }
        all.push(values);
      }
      unpacked.set(relation, all);
    }
    return unpacked.get(relation);
  }
  const relationName = (one) => `${titled(one.method)}, seed ${one.seed}: ${one.name}`;
  function pairs(values, clients) {
    const found = [];
    for (let i = 0; i < clients; i++) for (let j = i + 1; j < clients; j++) { const value = (values[i * clients + j] + values[j * clients + i]) / 2; if (!Number.isNaN(value)) found.push([i, j, value]); }
    return found;
  }
  // Pairs are joined from that number of deviations above the mean of all pairs; clusters are taken as they are.
  function communities(relation, values) {
    const all = pairs(values, relation.clients), numbers = all.map((pair) => pair[2]);
    const middle = numbers.length ? mean(numbers) : 0, spread = numbers.length ? Math.sqrt(mean(numbers.map((value) => (value - middle) ** 2))) : 0;
    const limit = relation.name === "same cluster" ? 0.5 : middle + chosen.strict * spread;
    const edges = all.filter((pair) => pair[2] >= limit);
    const parent = Array.from({ length: relation.clients }, (_, i) => i);
    const find = (i) => { while (parent[i] !== i) i = parent[i]; return i; };
    for (const [i, j] of edges) { const a = find(i), b = find(j); if (a !== b) parent[Math.max(a, b)] = Math.min(a, b); }
    const groups = new Map();
    for (let i = 0; i < relation.clients; i++) { const top = find(i); groups.set(top, [...(groups.get(top) || []), i]); }
    return { edges, limit, groups: [...groups.values()].sort((a, b) => b.length - a.length || a[0] - b[0]) };
  }
  // Positions of the clients: a force layout of the last round that starts from a circle, so that it is deterministic.
  function layout(relation) {
    const count = relation.clients, last = matrices(relation).at(-1), { edges } = communities(relation, last);
    const x = Array.from({ length: count }, (_, i) => Math.cos((2 * Math.PI * i) / count)), y = Array.from({ length: count }, (_, i) => Math.sin((2 * Math.PI * i) / count) * 1.0001);
    const ideal = 1.6 / Math.sqrt(count);
    for (let turn = 0, heat = 0.25; turn < 260; turn++, heat *= 0.982) {
      const dx = new Float64Array(count), dy = new Float64Array(count);
      const push = (i, j, force) => { const a = x[i] - x[j], b = y[i] - y[j], far = Math.hypot(a, b) || 1e-6, f = force(far) / far; dx[i] += a * f; dy[i] += b * f; dx[j] -= a * f; dy[j] -= b * f; };
      for (let i = 0; i < count; i++) for (let j = i + 1; j < count; j++) push(i, j, (far) => (ideal * ideal) / far);
      for (const [i, j] of edges) push(i, j, (far) => (-far * far) / ideal / Math.max(1, edges.length / count / 2));
      for (let i = 0; i < count; i++) {
        dx[i] -= x[i] * 0.9; dy[i] -= y[i] * 0.9;
        const far = Math.hypot(dx[i], dy[i]) || 1e-6, step = Math.min(far, heat) / far;
        x[i] += dx[i] * step; y[i] += dy[i] * step;
      }
    }
    return { x, y };
  }
  const hexed = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  function ramp() {
    const stops = [0, 1, 2, 3, 4].map((i) => hexed(theme(`r${i}`)));
    return (share) => { const place = Math.min(3.9999, Math.max(0, share * 4)), i = Math.floor(place), part = place - i; return `rgb(${stops[i].map((value, c) => Math.round(value + (stops[i + 1][c] - value) * part)).join(",")})`; };
  }

  let playing = null;
  const stopPlaying = () => { clearInterval(playing); playing = null; };
  function similarity() {
    stopPlaying();
    const here = cell(), body = at("similarity-body");
    if (!here.relations.length) return body.replaceChildren(h("p", { class: "note" }, "No run of this cell has relations between clients: FED-PUB records similarities, GCFL its clusters."));
    const relation = here.relations.find((one) => relationName(one) === chosen.relation) || here.relations[0];
    const all = matrices(relation), count = relation.clients, clusters = relation.name === "same cluster";
    if (chosen.round === null || chosen.round >= all.length) chosen.round = all.length - 1;
    let places = layout(relation);
    const say = { heat: null };
    const order = () => (chosen.grouped ? communities(relation, all.at(-1)).groups.flat() : Array.from({ length: count }, (_, i) => i));
    const heatRows = () => [["round", "client", "other", relation.name], ...all.flatMap((values, shot) => Array.from(values, (value, i) => [relation.rounds[shot], Math.floor(i / count), i % count, Number.isNaN(value) ? null : Number(value.toFixed(5))]))];
    const heat = figure("heat", clusters ? "Clients in one cluster" : "Similarity of clients", `${here.name}; ${titled(relation.method)}, seed ${relation.seed}`, (width, line) => {
      const left = 30, size = Math.min(width - left - 6, 520), step = size / count, colour = ramp(), values = all[chosen.round], listed = order();
      const share = (value) => (value - relation.low) / (relation.high - relation.low || 1);
      const frame = s("rect", { fill: "none", stroke: theme("ink"), "stroke-width": 2, visibility: "hidden", width: step, height: step, "data-transient": true });
      const read = (row, column) => {
        const value = values[listed[row] * count + listed[column]];
        frame.setAttribute("x", left + column * step); frame.setAttribute("y", 4 + row * step); frame.setAttribute("visibility", "visible");
        const shown = Number.isNaN(value) ? "one was absent" : clusters ? (value > 0.5 ? "together" : "apart") : fixed(value, 4);
        line.textContent = `Round ${relation.rounds[chosen.round]}, clients ${listed[row]} and ${listed[column]}: ${shown}`;
        return line.textContent;
      };
      let where = [0, 0];
      const place = (event) => { const box = surface.getBoundingClientRect(), limit = (value) => Math.min(count - 1, Math.max(0, value)); where = [limit(Math.floor(((event.clientY - box.top) / box.height) * count)), limit(Math.floor(((event.clientX - box.left) / box.width) * count))]; showTip(read(...where), event.clientX, event.clientY); };
      const surface = s("rect", { x: left, y: 4, width: size, height: size, fill: "transparent", tabindex: 0, role: "application", "aria-label": "Heat map; read it with the arrow keys", "data-reads": true, onpointermove: place, onpointerdown: place,
        onpointerleave: () => { frame.setAttribute("visibility", "hidden"); hideTip(); },
        onkeydown: (event) => { const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]; if (!step) return; event.preventDefault(); where = where.map((value, i) => Math.min(count - 1, Math.max(0, value + step[i]))); read(...where); } });
      const every = Math.ceil(count / Math.max(4, Math.floor(size / 19)));
      const numbers = listed.flatMap((client, i) => (i % every ? [] : [word(left - 6, 4 + (i + 0.5) * step + 4, client, { "text-anchor": "end", fill: theme("soft"), "font-size": 11 }), word(left + (i + 0.5) * step, size + 19, client, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 })]));
      let squares;
      if (count <= 64) {
        squares = listed.flatMap((i, row) => listed.map((j, column) => { const value = values[i * count + j]; return s("rect", { x: (left + column * step).toFixed(2), y: (4 + row * step).toFixed(2), width: (step + 0.4).toFixed(2), height: (step + 0.4).toFixed(2), fill: Number.isNaN(value) ? theme("faint") : colour(share(value)), "shape-rendering": "crispEdges", "data-value": Number.isNaN(value) ? "" : value.toFixed(4) }); }));
      } else { // too many squares would slow down the slider: draw one image
        const picture = document.createElement("canvas"), pen = picture.getContext("2d");
        picture.width = picture.height = count;
        listed.forEach((i, row) => listed.forEach((j, column) => { const value = values[i * count + j]; pen.fillStyle = Number.isNaN(value) ? theme("faint") : colour(share(value)); pen.fillRect(column, row, 1, 1); }));
        squares = s("image", { href: picture.toDataURL(), x: left, y: 4, width: size, height: size, style: { imageRendering: "pixelated" } });
      }
      const below = size + 40, id = "ramp", middle = (relation.low + relation.high) / 2;
      const key = clusters
        ? [[0, "apart"], [1, "together"]].map(([value, text], i) => [s("rect", { x: left + i * 100, y: below - 9, width: 12, height: 12, fill: colour(value), stroke: theme("line") }), word(left + i * 100 + 18, below + 1, text, { fill: theme("soft"), "font-size": 11 })])
        : [s("defs", {}, s("linearGradient", { id }, [0, 0.25, 0.5, 0.75, 1].map((offset) => s("stop", { offset, "stop-color": colour(offset) })))), s("rect", { x: left, y: below - 8, width: size, height: 9, fill: `url(#${id})`, stroke: theme("line") }), [[relation.low, "start", left], [middle, "middle", left + size / 2], [relation.high, "end", left + size]].map(([value, anchor, x]) => word(x, below + 15, fixed(value, 3), { "text-anchor": anchor, fill: theme("soft"), "font-size": 11 }))];
      if (!line.textContent || say.heat !== chosen.round) line.textContent = `Round ${relation.rounds[chosen.round]}. Point at a square, tap it, or use the arrow keys.`;
      say.heat = chosen.round;
      return canvas(width, below + 22, `Similarities of ${count} clients in round ${relation.rounds[chosen.round]}`, s("g", { transform: `translate(${Math.max(0, (width - size - left - 6) / 2)},0)` }, squares, numbers, key, frame, surface));
    }, heatRows);
    const graph = figure("communities", "Communities found", clusters ? "Clients of one cluster are joined" : "Joined: similarity well above the mean of all pairs", (width, line) => {
      const values = all[chosen.round], { edges, limit, groups } = communities(relation, values);
      const height = Math.min(width, 540), radius = count <= 30 ? 13 : count <= 80 ? 9 : 5, pad = radius + 6;
      const fit = (list, to) => { const low = Math.min(...list), high = Math.max(...list); return list.map((value) => (high - low < 1e-6 ? to / 2 : pad + ((value - low) / (high - low)) * (to - 2 * pad))); };
      const x = fit(places.x, width), y = fit(places.y, height), shade = ramp();
      const group = new Map(groups.flatMap((members, index) => members.map((client) => [client, index])));
      const tint = (client) => (groups[group.get(client)].length === 1 ? theme("m0") : theme(`m${[8, 1, 6, 2, 3, 5, 4, 9, 7][group.get(client) % 9]}`));
      const strongest = Math.max(...edges.map((edge) => edge[2]), limit + 1e-9);
      const several = groups.filter((members) => members.length > 1), alone = groups.filter((members) => members.length === 1).flat();
      const words = several.slice(0, 8).map((members) => (members.length > 12 ? `${members.slice(0, 12).join(", ")} … (${members.length})` : members.join(", "))).join("  |  ");
      line.textContent = `Round ${relation.rounds[chosen.round]}: ${plural(several.length, "group")}${words ? `: ${words}` : ""}${alone.length ? `; alone: ${alone.slice(0, 20).join(", ")}${alone.length > 20 ? " …" : ""}` : ""}.${clusters ? "" : ` Joined from ${fixed(limit, 3)} upwards.`}`;
      return canvas(width, height, `${plural(several.length, "group")} of clients in round ${relation.rounds[chosen.round]}`,
        edges.map(([i, j, value]) => s("line", { x1: x[i].toFixed(1), y1: y[i].toFixed(1), x2: x[j].toFixed(1), y2: y[j].toFixed(1), stroke: group.get(i) === group.get(j) ? tint(i) : shade(0.5), "stroke-width": 1.2, opacity: (clusters ? 0.3 : 0.35 + (0.45 * (value - limit)) / (strongest - limit)).toFixed(2) })),
        x.map((_, i) => s("g", { "data-tip": `Client ${i}: ${groups[group.get(i)].length === 1 ? "alone" : `with ${groups[group.get(i)].filter((one) => one !== i).slice(0, 12).join(", ")}`}`, "data-group": group.get(i) },
          s("circle", { cx: x[i].toFixed(1), cy: y[i].toFixed(1), r: radius, fill: tint(i), stroke: theme("card"), "stroke-width": 1.5 }),
          radius > 6 && word(x[i].toFixed(1), (y[i] + radius * 0.32).toFixed(1), i, { "text-anchor": "middle", fill: theme("card"), "font-size": radius > 10 ? 11 : 8, "font-weight": 600 }))));
    }, () => [["round", "client", "group"], ...all.flatMap((values, shot) => communities(relation, values).groups.flatMap((members, index) => members.map((client) => [relation.rounds[shot], client, index])))]);
    const shown = h("output", { for: "round" });
    const slider = h("input", { type: "range", id: "round", min: 0, max: all.length - 1, step: 1, value: chosen.round, "aria-label": "Round", oninput: () => { stopPlaying(); play.textContent = "Play"; show(Number(slider.value)); } });
    const show = (shot) => { chosen.round = shot; slider.value = shot; shown.textContent = `${relation.rounds[shot]} of ${relation.rounds.at(-1)}`; slider.setAttribute("aria-valuetext", `round ${relation.rounds[shot]}`); redraw("heat"); redraw("communities"); };
    const play = h("button", { type: "button", class: "quiet", onclick: () => {
      if (playing) { stopPlaying(); play.textContent = "Play"; return; }
      play.textContent = "Pause";
      let shot = chosen.round >= all.length - 1 ? -1 : chosen.round;
      playing = setInterval(() => { shot += 1; show(shot); if (shot >= all.length - 1) { stopPlaying(); play.textContent = "Play"; } }, Math.max(60, 4000 / all.length));
    } }, "Play");
    const strictness = h("output", { title: "deviations of the similarities of all pairs" }, `${signed(chosen.strict)} dev.`);
    body.replaceChildren(h("div", { class: "controls" },
      here.relations.length > 1 && h("label", {}, "Run", h("select", { id: "relation", onchange: (event) => { chosen.relation = event.target.value; chosen.round = null; similarity(); redraw(); at("relation").focus(); } }, here.relations.map((one) => h("option", { value: relationName(one), selected: one === relation }, relationName(one))))),
      h("label", { class: "wide" }, "Round", slider, shown), all.length > 1 && play,
      h("label", {}, h("input", { type: "checkbox", id: "grouped", checked: chosen.grouped, onchange: (event) => { chosen.grouped = event.target.checked; redraw("heat"); } }), "Order by group"),
      !clusters && h("label", {}, "Join from mean", h("input", { type: "range", id: "strict", min: -1, max: 2, step: 0.25, value: chosen.strict, oninput: (event) => { chosen.strict = Number(event.target.value); strictness.textContent = `${signed(chosen.strict)} dev.`; places = layout(relation); redraw("heat"); redraw("communities"); } }), strictness)),
    h("div", { class: "pair" }, heat, graph));
    shown.textContent = `${relation.rounds[chosen.round]} of ${relation.rounds.at(-1)}`;
    slider.setAttribute("aria-valuetext", `round ${relation.rounds[chosen.round]}`);
  }

  // ---- cost ---------------------------------------------------------------------------------------------------

  function cost() {
    const here = cell(), lines = Object.entries(here.costs).map(([method, one]) => ({ method, ...one })).filter((line) => known(line.up));
    if (!lines.length) return at("cost-body").replaceChildren(h("p", { class: "note" }, "No run of this cell has counted any bytes yet."));
    const draw = (width) => {
      const longest = Math.max(...lines.map((line) => titled(line.method).length)), narrow = width < Math.max(560, 24 * longest), left = narrow ? 46 : 74 + 7.8 * longest, row = narrow ? 66 : 48, most = Math.max(...lines.flatMap((line) => [line.up, line.down]), 1e-9);
      const height = lines.length * row + 44, x = scale(0, most, left, width - 74);
      const grid = ticks(0, most, narrow ? 3 : 6).map((value) => [s("line", { x1: x(value), x2: x(value), y1: 0, y2: height - 38, stroke: theme("line") }), word(x(value), height - 22, value.toLocaleString("en"), { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 })]);
      const bars = lines.map((line, index) => {
        const top = index * row + (narrow ? 24 : 6);
        return s("g", {}, word(narrow ? 0 : left - 56, narrow ? top - 7 : top + 22, titled(line.method), { "text-anchor": narrow ? "start" : "end", "font-weight": 600 }),
          [["up", line.up, line.setup_up], ["down", line.down, line.setup_down]].map(([way, value, setup], i) => {
            const y = top + i * 18, start = x(setup || 0), text = `${titled(line.method)}, ${way}: ${megabytes(value)} MB${setup ? `, of these ${megabytes(setup)} MB in set-up` : ""}`;
            return s("g", { "data-tip": text }, word(left - 8, y + 11, way, { "text-anchor": "end", fill: theme("soft"), "font-size": 11 }),
              setup > 0 && s("rect", { x: left, y, width: Math.max(0.5, start - left), height: 14, fill: theme("soft"), opacity: 0.6 }),
              s("rect", { x: start, y, width: Math.max(0.5, x(value) - start), height: 14, fill: methodColour(line.method), opacity: i ? 0.55 : 1 }), word(x(value) + 6, y + 11, megabytes(value), { fill: theme("soft"), "font-size": 11 }));
          }));
      });
      return canvas(width, height, `Megabytes up and down per run on ${here.name}`, grid, bars, word((left + width - 74) / 2, height - 4, "MB per run; grey: set-up", { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
    };
    const judged = lines.filter((line) => known(line.test)), best = here.frontier.map((label) => judged.find((line) => line.method === label)).filter(Boolean);
    const drawBytes = (width) => {
      // Points are numbered by rank; their names, which could be long and overlap, are in a list.
      const ranked = [...judged].sort((a, b) => b.test - a.test), longest = Math.max(...ranked.map((line) => titled(line.method).length)), list = 34 + 7.4 * longest;
      const beside = width > list + 360, plot = 330, height = beside ? Math.max(plot, ranked.length * 20 + 30) : plot + ranked.length * 20 + 14;
      const left = 46, right = beside ? width - list : width - 14, bottom = plot - 46, most = Math.max(...judged.map((line) => line.up), 1e-9) * 1.06;
      const values = judged.map((line) => line.test), pad = (Math.max(...values) - Math.min(...values) || 1) * 0.1;
      const low = Math.min(...values) - pad, high = Math.max(...values) + pad, x = scale(0, most, left + 10, right - 10), y = scale(low, high, bottom, 14);
      const grid = [ticks(0, most, width < 560 ? 3 : 6).map((value) => [s("line", { x1: x(value), x2: x(value), y1: 14, y2: bottom, stroke: theme("line") }), word(x(value), bottom + 17, value.toLocaleString("en"), { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 })]),
        ticks(low, high, 6).map((value) => [s("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: theme("line") }), word(left - 6, y(value) + 4, shortNumber(value), { "text-anchor": "end", fill: theme("soft"), "font-size": 11 })])];
      // A step function: with a larger budget one keeps a method until the next better one is affordable.
      const steps = best.map((line, i) => (i ? `H${x(line.up)}V${y(line.test)}` : `M${x(line.up)} ${y(line.test)}`)).join("") + `H${right}`;
      const mark = (line, cx, cy) => [s("circle", { cx, cy, r: 8.5, fill: methodColour(line.method), stroke: theme("card"), "stroke-width": 1.5 }), word(cx, cy + 3.5, ranked.indexOf(line) + 1, { "text-anchor": "middle", fill: theme("card"), "font-size": 10, "font-weight": 700 })];
      const points = [...ranked].reverse().map((line) => s("g", { "data-tip": `${titled(line.method)}: ${fixed(line.test)} with ${megabytes(line.up)} MB up`, "data-point": line.method }, mark(line, x(line.up), y(line.test))));
      const names = ranked.map((line, i) => {
        const cx = beside ? right + 16 : 12, cy = (beside ? 22 : plot + 12) + 20 * i;
        return [mark(line, cx, cy), word(cx + 15, cy + 4, titled(line.method), { "font-size": 11.5, "font-weight": best.includes(line) ? 600 : 400 })];
      });
      return canvas(width, height, `Test ${here.metric} against megabytes sent up on ${here.name}`, grid, best.length > 1 && s("path", { d: steps, fill: "none", stroke: theme("soft"), "stroke-width": 1.4, "stroke-dasharray": "5 4" }), points, names,
        word((left + right) / 2, plot - 8, "MB sent up by all clients in a run", { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
    };
    const columns = [
      { head: "Method", text: true, value: (line) => titled(line.method), show: (line) => methodWord(line.method) },
      { head: "Zeros", value: (line) => line.sparsity, show: (line) => (known(line.sparsity) ? `${fixed(line.sparsity, 1)} %` : "") },
      { head: "MB up", value: (line) => line.up, show: (line) => megabytes(line.up) }, { head: "MB down", value: (line) => line.down, show: (line) => megabytes(line.down) },
      { head: "of these set-up, up", value: (line) => line.setup_up, show: (line) => megabytes(line.setup_up) }, { head: "set-up, down", value: (line) => line.setup_down, show: (line) => megabytes(line.setup_down) },
      { head: "Seconds", value: (line) => line.seconds, show: (line) => fixed(line.seconds, 1) },
    ];
    at("cost-body").replaceChildren(
      judged.length > 1 ? figure("bytes", `${here.metric[0].toUpperCase()}${here.metric.slice(1)} against bytes`, `${here.name}; in percent, mean over seeds; dashed line: no method is better for fewer bytes`, drawBytes, () => [["method", "test", "mb_up", "on_the_line"], ...judged.map((line) => [line.method, line.test, line.up, best.includes(line) ? "yes" : "no"])], false) : "",
      figure("cost", "Megabytes per run", `${here.name}; mean over seeds`, draw, () => [["method", "zeros_percent", "mb_up", "mb_down", "setup_mb_up", "setup_mb_down", "seconds"], ...lines.map((line) => [line.method, line.sparsity, line.up, line.down, line.setup_up, line.setup_down, line.seconds])], false),
      table("cost", "Sparsity, bytes and time", `${here.name}; per run, mean over seeds`, columns, lines));
  }

  // ---- runs ---------------------------------------------------------------------------------------------------

  function runs() {
    const parts = data.cells.map((one, index) => {
      const own = data.runs.filter((run) => run.cell === index);
      const key = `cell ${one.name} ${one.task}`, open = chosen.open.has(key) || (data.cells.length === 1 && own.length <= 8);
      return h("details", { class: "card", open, ontoggle: (event) => chosen.open[event.currentTarget.open ? "add" : "delete"](key) },
        h("summary", {}, h("h3", {}, one.name), h("small", {}, `${one.task}, ${plural(own.length, "run")}${one.dataset !== one.name.split(",")[0] ? `, ${one.dataset}` : ""}`)),
        own.map((run) => {
          const state = run.finished ? `test ${fixed(run.test)}, best round ${run.best_round} of ${run.round}` : `unfinished, round ${run.round} of ${run.rounds ?? "unknown"}`;
          const box = h("details", { open: chosen.open.has(run.path), ontoggle: () => { if (box.open) { chosen.open.add(run.path); unfold(); } else chosen.open.delete(run.path); } }, h("summary", {}, `${titled(run.method)}, seed ${run.seed} `, h("span", { class: run.finished ? "note" : "open" }, `— ${state}`)));
          const unfold = () => { if (box.childElementCount === 1) box.append(h("div", { class: "pair" }, h("div", {}, h("h4", {}, "Configuration"), h("pre", { tabindex: 0 }, JSON.stringify(run.config, null, 2))), h("div", {}, h("h4", {}, "Environment"), h("pre", { tabindex: 0 }, JSON.stringify(data.environments[run.environment], null, 2)))), h("p", { class: "say" }, run.path)); };
          if (box.open) unfold();
          return box;
        }));
    });
    at("runs-body").replaceChildren(...parts);
  }

  // ---- putting it together ------------------------------------------------------------------------------------

  function redraw(name) {
    hideTip();
    for (const one of drawings) if (one.place.isConnected && (!name || one.place.parentElement.dataset.figure === name)) one.redraw();
  }
  function pick() {
    if (chosen.cell >= data.cells.length) chosen.cell = 0;
    at("cell").replaceChildren(...data.cells.map((one, index) => h("option", { value: index, selected: index === chosen.cell }, one.name + (data.tables.length > 1 ? ` (${one.task})` : ""))));
  }
  function drawCell() {
    drawings.length = 0;
    sweeps(); convergence(); clients(); similarity(); cost();
    redraw();
  }
  // Redrawing keeps the focus and the scroll positions.
  function drawAll() {
    const focused = document.activeElement?.id, top = scrollY;
    const tables = () => [...document.querySelectorAll("[data-table]")].map((one) => [one.dataset.table, one.querySelector(".scroll")]);
    const before = new Map(tables().map(([name, box]) => [name, box.scrollLeft]));
    drawParts();
    for (const [name, box] of tables()) box.scrollLeft = before.get(name) || 0;
    if (focused) at(focused)?.focus({ preventScroll: true });
    scrollTo({ top, behavior: "instant" });
  }
  function drawParts() {
    facts(); complaints(); summary(); pick(); runs(); drawCell();
  }
  at("cell").addEventListener("change", (event) => { chosen.cell = Number(event.target.value); chosen.relation = ""; chosen.round = null; drawCell(); });

  let remembered = null;
  try { remembered = localStorage.getItem("fedpub-theme"); } catch { /* a page from a file may have no storage */ }
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  function setTheme(name) {
    root.dataset.theme = name;
    at("theme").textContent = name === "dark" ? "Light" : "Dark";
  }
  setTheme(remembered || (prefersDark.matches ? "dark" : "light"));
  at("theme").addEventListener("click", () => {
    remembered = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("fedpub-theme", remembered); } catch { /* then the choice lasts until the page is closed */ }
    setTheme(remembered);
    drawAll();
  });
  prefersDark.addEventListener("change", () => { if (!remembered) { setTheme(prefersDark.matches ? "dark" : "light"); drawAll(); } });
  let printed = null;
  addEventListener("beforeprint", () => { printed = root.dataset.theme; setTheme("light"); drawAll(); });
  addEventListener("afterprint", () => { if (printed) { setTheme(printed); drawAll(); } });
  let width = innerWidth, waiting = null;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(waiting); waiting = setTimeout(() => redraw(), 80); });

  drawParts();

  // ---- live ---------------------------------------------------------------------------------------------------

  if (data.live) {
    const pill = at("live");
    let tag = null;
    const say = (text, lost) => { if (pill.textContent !== text) pill.textContent = text; pill.classList.toggle("lost", Boolean(lost)); pill.hidden = false; };
    const poll = async () => {
      try {
        const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
        if (answer.status === 200) {
          const first = tag === null;
          tag = answer.headers.get("ETag");
          const fresh = await answer.json();
          if (!first || JSON.stringify(fresh) !== JSON.stringify(data)) {
            const relations = cell().relations, followed = chosen.round === null || !relations.length || chosen.round >= (relations.find((one) => relationName(one) === chosen.relation) || relations[0]).rounds.length - 1;
            const name = cell().name;
            data = fresh;
            chosen.cell = Math.max(0, data.cells.findIndex((one) => one.name === name));
            if (followed) chosen.round = null;
            drawAll();
          }
        }
        const open = data.runs.filter((run) => !run.finished).length;
        if (answer.ok || answer.status === 304) say(open ? `live, ${plural(open, "run")} in progress` : "live, all runs finished");
        else say("the runs cannot be read at the moment", true);
      } catch {
        say("the server has stopped", true);
      }
      setTimeout(poll, 1500);
    };
    say("live");
    poll();
  }
})();
