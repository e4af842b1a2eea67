  let data = JSON.parse(document.getElementById("data").textContent);
  // The reader's choices; they are kept when a live page redraws itself.
  const chosen = { cell: 0, relation: "", matrix: "similarity", round: null, grouped: true, hidden: new Set(), sort: {}, open: new Set() };

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

  // ---- legends ------------------------------------------------------------------------------------------------

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
  const placeName = () => (cell() ? cell().name : "");
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
    if (!labels.length) return at("clients-body").replaceChildren(h("p", { class: "note" }, "No method of this cell has a local run with the same data and seed to compare with: run the method local as well. Of deployed runs with secure aggregation no single client is known."));
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

  // ---- similarity: heat maps, communities, averages and models used --------------------------------------------

  const unpacked = new WeakMap();
  function rounds(matrix, run) {
    if (!unpacked.has(matrix)) {
      const raw = atob(matrix.values), size = run.clients ** 2, all = [];
      for (let shot = 0; shot < run.rounds.length; shot++) {
        const values = new Float64Array(size);
        for (let i = 0; i < size; i++) {
          const place = 2 * (shot * size + i), step = raw.charCodeAt(place) + 256 * raw.charCodeAt(place + 1);
          values[i] = step === 65535 ? NaN : matrix.low + (step / 65534) * (matrix.high - matrix.low);
        }
        all.push(values);
      }
      unpacked.set(matrix, all);
    }
    return unpacked.get(matrix);
  }
  const relationName = (one) => `${titled(one.method)}, seed ${one.seed}`;
  const MATRICES = {
    similarity: ["similarity", "Similarity of clients", "how alike two clients are to the server"],
    alpha: ["α", "Weights of the averages, α", "row: whose average it is; column: whose weights it takes; a row sums to one"],
    "same cluster": ["clusters", "Clients in one cluster", "clients of one cluster share a model"],
  };
  const matrixWords = (matrix) => MATRICES[matrix.name] || [matrix.name, `Relations between clients: ${matrix.name}`, "as the server recorded them"];
  const RULES = {
    community: "As the method itself formed them",
    cluster: "The clusters of the method",
    linkage: "Average linkage of the similarities, at the stage with the best silhouette",
  };
  // The members of every community in a round, and the clients that have none.
  function grouped(run, shot) {
    const groups = [], without = [];
    run.communities[shot].forEach((group, client) => (group < 0 ? without : (groups[group] = groups[group] || [])).push(client));
    return { groups, without };
  }
  const groupColour = (number) => theme(`m${[8, 1, 6, 2, 3, 5, 4, 9, 7][number % 9]}`);
  // A community has the colour of the true one with which it shares most clients, if no other shares more with that one.
  function foundColours(run, shot) {
    const { groups } = grouped(run, shot), number = new Map(), taken = new Set();
    const give = (group, colour) => { number.set(group, colour); taken.add(colour); };
    if (run.true) {
      const shared = groups.flatMap((members, group) => [...new Set(run.true)].map((one) => [members.filter((client) => run.true[client] === one).length, group, one])).filter(([count]) => count).sort((a, b) => b[0] - a[0]);
      for (const [, group, one] of shared) if (!number.has(group) && !taken.has(one)) give(group, one);
    }
    groups.forEach((_, group) => { let free = 0; while (taken.has(free)) free += 1; if (!number.has(group)) give(group, free); });
    return run.communities[shot].map((group) => (group < 0 ? theme("line") : groups[group].length === 1 ? theme("m0") : groupColour(number.get(group))));
  }
  const owner = (run, shot, client) => (run.used ? data.owners[run.used[shot][client]] : null);
  function about(run, shot, client) {
    const parts = [];
    if (run.communities) parts.push(run.communities[shot][client] < 0 ? "in no community yet" : `community ${run.communities[shot][client]}`);
    if (run.true) parts.push(`true community ${run.true[client]}`);
    if (run.contributors && known(run.contributors[shot][client])) parts.push(plural(fixed(run.contributors[shot][client], 1), "effective contributor"));
    if (owner(run, shot, client)) parts.push(`uses ${owner(run, shot, client)} model`);
    return parts.length ? `Client ${client}: ${parts.join(", ")}` : "";
  }
  const hexed = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  function ramp() {
    const stops = [0, 1, 2, 3, 4].map((i) => hexed(theme(`r${i}`)));
    return (share) => { const place = Math.min(3.9999, Math.max(0, share * 4)), i = Math.floor(place), part = place - i; return `rgb(${stops[i].map((value, c) => Math.round(value + (stops[i + 1][c] - value) * part)).join(",")})`; };
  }

  function heatMap(run, matrix) {
    const all = rounds(matrix, run), count = run.clients, clusters = matrix.name === "same cluster", weights = matrix.name === "alpha";
    const [, title, small] = matrixWords(matrix);
    const strips = [run.communities && "found", run.true && "true"].filter(Boolean);
    const order = (shot) => {
      const clients = Array.from({ length: count }, (_, i) => i), group = (client) => (run.communities[shot][client] < 0 ? Infinity : run.communities[shot][client]);
      return chosen.grouped && run.communities ? clients.sort((a, b) => (group(a) === group(b) ? a - b : group(a) - group(b))) : clients;
    };
    const rows = () => [["round", "client", "other", matrix.name], ...all.flatMap((values, shot) => Array.from(values, (value, i) => [run.rounds[shot], Math.floor(i / count), i % count, Number.isNaN(value) ? null : Number(value.toFixed(5))]))];
    const caption = [relationName(run), small, weights && "colours by square root", strips.length && `left edge: community ${strips.join(", ")}`];
    return figure("heat", title, caption.filter(Boolean).join("; "), (width, line) => {
      const left = 30 + 9 * strips.length, size = Math.min(width - left - 6, 520), step = size / count, colour = ramp(), shot = chosen.round, values = all[shot], listed = order(shot);
      const share = (value) => { const part = (value - matrix.low) / (matrix.high - matrix.low || 1); return weights ? Math.sqrt(part) : part; };
      const fill = (value) => (Number.isNaN(value) ? theme("faint") : colour(share(value)));
      const frame = s("rect", { fill: "none", stroke: theme("ink"), "stroke-width": 2, visibility: "hidden", width: step, height: step, "data-transient": true });
      const read = (row, column) => {
        const [i, j] = [listed[row], listed[column]], value = values[i * count + j];
        frame.setAttribute("x", left + column * step); frame.setAttribute("y", 4 + row * step); frame.setAttribute("visibility", "visible");
        const shown = Number.isNaN(value) ? "unknown, one was absent or is not compared yet" : clusters ? (value > 0.5 ? "together" : "apart") : weights ? `α ${fixed(value, 4)}, the weight of ${j} in the average of ${i}` : fixed(value, 4);
        line.textContent = `Round ${run.rounds[shot]}, clients ${i} and ${j}: ${shown}`;
        return [line.textContent, about(run, shot, i), i !== j && about(run, shot, j)].filter(Boolean).join("\n");
      };
      let where = [0, 0];
      const place = (event) => { const box = surface.getBoundingClientRect(), limit = (value) => Math.min(count - 1, Math.max(0, value)); where = [limit(Math.floor(((event.clientY - box.top) / box.height) * count)), limit(Math.floor(((event.clientX - box.left) / box.width) * count))]; showTip(read(...where), event.clientX, event.clientY); };
      const surface = s("rect", { x: left, y: 4, width: size, height: size, fill: "transparent", tabindex: 0, role: "application", "aria-label": "Heat map; read it with the arrow keys", "data-reads": true, onpointermove: place, onpointerdown: place,
        onpointerleave: () => { frame.setAttribute("visibility", "hidden"); hideTip(); },
        onkeydown: (event) => { const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]; if (!step) return; event.preventDefault(); where = where.map((value, i) => Math.min(count - 1, Math.max(0, value + step[i]))); read(...where); } });
      const every = Math.ceil(count / Math.max(4, Math.floor(size / 19)));
      const numbers = listed.flatMap((client, i) => (i % every ? [] : [word(24, 4 + (i + 0.5) * step + 4, client, { "text-anchor": "end", fill: theme("soft"), "font-size": 11 }), word(left + (i + 0.5) * step, size + 19, client, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 })]));
      const tints = { found: run.communities && foundColours(run, shot), true: run.true && run.true.map(groupColour) };
      const edges = strips.map((name, place) => listed.map((client, row) => s("rect", { x: 30 + 9 * place, y: (4 + row * step).toFixed(2), width: 6, height: (step + 0.2).toFixed(2), fill: tints[name][client], "data-tip": about(run, shot, client), "data-strip": name })));
      let squares;
      if (count <= 64) {
        squares = listed.flatMap((i, row) => listed.map((j, column) => { const value = values[i * count + j]; return s("rect", { x: (left + column * step).toFixed(2), y: (4 + row * step).toFixed(2), width: (step + 0.4).toFixed(2), height: (step + 0.4).toFixed(2), fill: fill(value), "shape-rendering": "crispEdges", "data-value": Number.isNaN(value) ? "" : value.toFixed(4) }); }));
      } else { // too many squares would slow down the slider: draw one image
        const picture = document.createElement("canvas"), pen = picture.getContext("2d");
        picture.width = picture.height = count;
        listed.forEach((i, row) => listed.forEach((j, column) => { pen.fillStyle = fill(values[i * count + j]); pen.fillRect(column, row, 1, 1); }));
        squares = s("image", { href: picture.toDataURL(), x: left, y: 4, width: size, height: size, style: { imageRendering: "pixelated" } });
      }
      // In the order of the communities, each of them is a block; two lines, so that one shows on any colour.
      let first = 0;
      const blocks = chosen.grouped && run.communities ? grouped(run, shot).groups.filter(Boolean).flatMap((members) => {
        const start = first, box = { x: left + start * step, y: 4 + start * step, width: members.length * step, height: members.length * step, fill: "none" };
        first += members.length;
        return members.length > 1 ? [s("rect", { ...box, stroke: theme("card"), "stroke-width": 3.4 }), s("rect", { ...box, stroke: theme("ink"), "stroke-width": 1.4, "data-block": members.length })] : [];
      }) : [];
      const below = size + 40, id = "ramp", middle = matrix.low + (matrix.high - matrix.low) * (weights ? 0.25 : 0.5);
      const key = clusters
        ? [[0, "apart"], [1, "together"]].map(([value, text], i) => [s("rect", { x: left + i * 100, y: below - 9, width: 12, height: 12, fill: colour(value), stroke: theme("line") }), word(left + i * 100 + 18, below + 1, text, { fill: theme("soft"), "font-size": 11 })])
        : [s("defs", {}, s("linearGradient", { id }, [0, 0.25, 0.5, 0.75, 1].map((offset) => s("stop", { offset, "stop-color": colour(offset) })))), s("rect", { x: left, y: below - 8, width: size, height: 9, fill: `url(#${id})`, stroke: theme("line") }), [[matrix.low, "start", left], [middle, "middle", left + size / 2], [matrix.high, "end", left + size]].map(([value, anchor, x]) => word(x, below + 15, fixed(value, 3), { "text-anchor": anchor, fill: theme("soft"), "font-size": 11 }))];
      line.textContent = `Round ${run.rounds[shot]}. Point at a square, tap it, or use the arrow keys.`;
      return canvas(width, below + 22, `${title}: ${count} clients in round ${run.rounds[shot]}`, s("g", { transform: `translate(${Math.max(0, (width - size - left - 6) / 2)},0)` }, edges, squares, blocks, numbers, key, frame, surface));
    }, rows);
  }

  function communities(run) {
    const rows = () => [["round", "client", "community", ...(run.true ? ["true_community"] : [])], ...run.communities.flatMap((found, shot) => found.map((group, client) => [run.rounds[shot], client, group < 0 ? null : group, ...(run.true ? [run.true[client]] : [])]))];
    return figure("communities", "Communities found", `${RULES[run.rule]}${run.true ? "; colour: true community" : ""}`, (width, line) => {
      const shot = chosen.round, { groups, without } = grouped(run, shot), several = groups.map((members, number) => ({ name: `${number}`, members })).filter(({ members }) => members && members.length > 1), alone = groups.flat().filter((client) => groups[run.communities[shot][client]].length === 1);
      const listed = [...several, ...(alone.length ? [{ name: "alone", members: alone }] : []), ...(without.length ? [{ name: "none yet", members: without }] : [])];
      const radius = run.clients <= 80 ? 12 : 6, gap = 2 * radius + 4, left = 118, across = Math.max(1, Math.floor((width - left) / gap)), tints = run.true ? run.true.map(groupColour) : foundColours(run, shot);
      let top = 4;
      const drawn = listed.map(({ name, members }, index) => {
        const tall = Math.ceil(members.length / across) * gap + 12, y = top;
        top += tall;
        return s("g", { "data-community": name },
          index > 0 && s("line", { x1: 0, x2: width, y1: y - 4, y2: y - 4, stroke: theme("line") }),
          word(0, y + radius + 4, /^\d/.test(name) ? `community ${name}` : name, { "font-weight": 600 }), word(left - 12, y + radius + 4, members.length, { "text-anchor": "end", fill: theme("soft"), "font-size": 11, "data-tip": plural(members.length, "client") }),
          members.map((client, place) => {
            const cx = left + radius + (place % across) * gap, cy = y + radius + Math.floor(place / across) * gap, blank = !run.true && name === "none yet";
            return s("g", { "data-tip": about(run, shot, client) }, s("circle", { cx, cy, r: radius, fill: blank ? theme("faint") : tints[client], stroke: blank ? theme("soft") : "none" }),
              radius > 6 && word(cx, cy + 4, client, { "text-anchor": "middle", fill: theme(blank ? "ink" : "card"), "font-size": 11, "font-weight": 600 }));
          }));
      });
      const words = several.slice(0, 8).map(({ members }) => (members.length > 12 ? `${members.slice(0, 12).join(", ")} … (${members.length})` : members.join(", "))).join("  |  ");
      const index = run.index && run.index[shot];
      line.textContent = `Round ${run.rounds[shot]}: ${plural(several.length, "group")}${words ? `: ${words}` : ""}${alone.length ? `; alone: ${alone.slice(0, 20).join(", ")}${alone.length > 20 ? " …" : ""}` : ""}.${known(index) ? ` Adjusted Rand index with the true communities: ${fixed(index)}.` : ""}`;
      return canvas(width, Math.max(top, 40), `${plural(several.length, "group")} of clients in round ${run.rounds[shot]}`, drawn);
    }, rows);
  }

  // A small figure with a value, or some, for each recorded round; a dashed line marks the round chosen above.
  function timeline(name, title, small, run, { low, high, key = [], draw, read }, rows) {
    const numbers = run.history.rounds;
    return figure(name, title, small, (width, line) => {
      let end = 0, lower = 12;
      const keys = key.map(([text, colour]) => {
        const wide = 30 + text.length * 6.6;
        if (end && end + wide > width) { end = 0; lower += 20; }
        end += wide;
        return [s("rect", { x: end - wide, y: lower - 10, width: 12, height: 12, rx: 2, fill: colour, stroke: theme("line") }), word(end - wide + 18, lower, text, { "font-size": 11.5 })];
      });
      const left = 36, right = width - 8, top = key.length ? lower + 14 : 8, bottom = top + 150;
      const x = scale(numbers[0] - 0.5, numbers.at(-1) + 0.5, left, right), y = scale(low, high, bottom, top);
      const grid = ticks(low, high, 4).map((value) => [s("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: theme("line") }), word(left - 7, y(value) + 4, shortNumber(value), { "text-anchor": "end", fill: theme("soft"), "font-size": 11 })]);
      const below = ticks(numbers[0], numbers.at(-1), 4).filter((value) => Number.isInteger(value) && value > numbers[0] + numbers.at(-1) / 20).concat([numbers[0]]).map((value) => word(x(value), bottom + 18, value, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
      const now = run.rounds[chosen.round], at = numbers.indexOf(now);
      const guide = s("line", { y1: top, y2: bottom, stroke: theme("soft"), visibility: "hidden", "data-transient": true });
      const point = (place) => { guide.setAttribute("x1", x(numbers[place])); guide.setAttribute("x2", x(numbers[place])); guide.setAttribute("visibility", "visible"); return `Round ${numbers[place]}: ${read(place)}`; };
      let current = at < 0 ? numbers.length - 1 : at;
      const move = (event) => {
        const box = surface.getBoundingClientRect(), value = numbers[0] - 0.5 + ((event.clientX - box.left) / box.width) * (numbers.at(-1) - numbers[0] + 1);
        current = numbers.reduce((best, number, place) => (Math.abs(number - value) < Math.abs(numbers[best] - value) ? place : best), 0);
        showTip(point(current), event.clientX, event.clientY);
      };
      const surface = s("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "transparent", tabindex: 0, role: "slider", "aria-label": `${title} by round`, "aria-valuemin": numbers[0], "aria-valuemax": numbers.at(-1), "aria-valuenow": numbers[current], "data-reads": true, onpointermove: move, onpointerdown: move,
        onpointerleave: () => { guide.setAttribute("visibility", "hidden"); hideTip(); },
        onblur: () => guide.setAttribute("visibility", "hidden"),
        onkeydown: (event) => { const step = { ArrowLeft: -1, ArrowRight: 1, Home: -numbers.length, End: numbers.length }[event.key]; if (!step) return; event.preventDefault(); current = Math.min(numbers.length - 1, Math.max(0, current + step)); surface.setAttribute("aria-valuenow", numbers[current]); line.textContent = point(current); surface.setAttribute("aria-valuetext", line.textContent); } });
      surface.setAttribute("aria-valuetext", `Round ${numbers[current]}: ${read(current)}`);
      line.textContent = `Round ${numbers[current]}: ${read(current)}`;
      return canvas(width, bottom + 36, `${title} by round`, keys, grid, draw(x, y), below, word((left + right) / 2, bottom + 34, "round", { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }),
        at >= 0 && s("line", { x1: x(now), x2: x(now), y1: top, y2: bottom, stroke: theme("ink"), "stroke-dasharray": "3 3", "data-now": now }), guide, surface);
    }, rows);
  }
  // A line through the rounds that have a value.
  function through(run, values, x, y) {
    const points = values.flatMap((value, place) => (known(value) ? [[x(run.history.rounds[place]), y(value)]] : []));
    if (points.length === 1) return s("circle", { cx: points[0][0], cy: points[0][1], r: 3, fill: methodColour(run.method) });
    return s("path", { d: points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join(""), fill: "none", stroke: methodColour(run.method), "stroke-width": WIDTH, "stroke-linejoin": "round", "data-curve": points.length });
  }
  function contributorsByRound(run) {
    const all = run.history.contributors, numbers = run.history.rounds, some = all.filter(known);
    if (!some.length) return null;
    return timeline("contributors", "Effective contributors", "1 / Σ α² of a client's average: 1 if it is its own model alone, n if n clients weigh the same; line: mean over clients, band: smallest to largest", run, {
      low: 0, high: Math.max(2, ...some.map((one) => one[2])) * 1.05,
      read: (place) => (all[place] ? `mean ${fixed(all[place][1], 1)}, from ${fixed(all[place][0], 1)} to ${fixed(all[place][2], 1)} per client` : "unknown"),
      draw: (x, y) => {
        const places = numbers.map((_, place) => place).filter((place) => all[place]), side = (end) => places.map((place) => `${x(numbers[place]).toFixed(1)} ${y(all[place][end]).toFixed(1)}`);
        return [places.length > 1 && s("path", { d: `M${[...side(2), ...side(0).reverse()].join("L")}Z`, fill: methodColour(run.method), opacity: 0.16 }), through(run, all.map((one) => one && one[1]), x, y)];
      },
    }, () => [["round", "smallest", "mean", "largest"], ...numbers.map((round, place) => [round, ...(all[place] || [null, null, null])])]);
  }
  function indexByRound(run) {
    const all = run.history.index, some = all.filter(known);
    if (!some.length) return null;
    return timeline("index", "Found and true communities", "adjusted Rand index: 1 if the communities found are the true ones, about 0 if they agree no better than by chance", run, {
      low: Math.min(0, ...some), high: 1.05,
      read: (place) => (known(all[place]) ? `index ${fixed(all[place])}` : "no communities yet"),
      draw: (x, y) => through(run, all, x, y),
    }, () => [["round", "adjusted_rand_index"], ...run.history.rounds.map((round, place) => [round, all[place]])]);
  }
  function usedByRound(run) {
    const all = run.history.used, numbers = run.history.rounds, colours = data.owners.map((_, model) => theme(`m${[3, 1, 4, 0][model]}`));
    return timeline("used", "Models that clients use", "clients by whose model they use, as their validation chose", run, {
      low: 0, high: run.clients, key: data.owners.map((name, model) => [name, colours[model]]),
      read: (place) => data.owners.map((name, model) => `${name} ${all[place][model]}`).join(", "),
      draw: (x, y) => numbers.map((round, place) => {
        // A column reaches half-way to the rounds beside it.
        const from = place ? (numbers[place - 1] + round) / 2 : round - 0.5, to = place + 1 < numbers.length ? (round + numbers[place + 1]) / 2 : round + 0.5;
        let under = 0;
        return all[place].map((clients, model) => { under += clients; return clients > 0 && s("rect", { x: x(from).toFixed(1), y: y(under).toFixed(1), width: (x(to) - x(from) + 0.2).toFixed(1), height: (y(under - clients) - y(under)).toFixed(1), fill: colours[model], "shape-rendering": "crispEdges", "data-used": model, "data-round": round }); });
      }),
    }, () => [["round", ...data.owners], ...numbers.map((round, place) => [round, ...all[place]])]);
  }
  function eachClient(run) {
    const shot = chosen.round, at = (values, client) => values && values[shot][client];
    const columns = [
      { head: "Client", value: (client) => client },
      run.communities && { head: "Community", value: (client) => (at(run.communities, client) < 0 ? null : at(run.communities, client)), show: (client) => (at(run.communities, client) < 0 ? "none yet" : at(run.communities, client)) },
      run.true && { head: "True", title: "Its true community", value: (client) => run.true[client] },
      run.contributors && { head: "Contributors", title: "Effective contributors to the client's average, 1 / Σ α²", value: (client) => at(run.contributors, client), show: (client) => fixed(at(run.contributors, client), 1) },
      run.used && { head: "Uses", text: true, title: "Whose model the client uses, as its validation chose", value: (client) => owner(run, shot, client) || "unknown" },
    ].filter(Boolean);
    return table("related", "Client by client", `${relationName(run)}; round ${run.rounds[shot]}`, columns, Array.from({ length: run.clients }, (_, client) => client));
  }

  let playing = null;
  const stopPlaying = () => { clearInterval(playing); playing = null; };
  function similarity() {
    stopPlaying();
    const here = cell(), body = at("similarity-body");
    if (!here.relations.length) return body.replaceChildren(h("p", { class: "note" }, "No run of this cell has relations between clients: FED-PUB records similarities and weights, GCFL its clusters; deployed runs with secure aggregation record neither."));
    const run = here.relations.find((one) => relationName(one) === chosen.relation) || here.relations[0], last = run.rounds.length - 1;
    if (chosen.round === null || chosen.round > last) chosen.round = last;
    const matrix = run.matrices.find((one) => one.name === chosen.matrix) || run.matrices[0];
    const again = (id) => { similarity(); redraw(); at(id).focus(); };
    const shown = h("output", { for: "round" });
    let clients = last >= 0 && (run.communities || run.contributors || run.used) && eachClient(run);
    const say = () => { shown.textContent = `${run.rounds[chosen.round]} of ${run.rounds.at(-1)}`; slider.setAttribute("aria-valuetext", `round ${run.rounds[chosen.round]}`); };
    const show = (shot) => {
      chosen.round = shot; slider.value = shot; say();
      for (const name of ["heat", "communities", "contributors", "index", "used"]) redraw(name);
      if (clients) { const fresh = eachClient(run); clients.replaceWith(fresh); clients = fresh; }
    };
    const slider = h("input", { type: "range", id: "round", min: 0, max: last, step: 1, value: chosen.round, "aria-label": "Round", oninput: () => { stopPlaying(); play.textContent = "Play"; show(Number(slider.value)); } });
    const play = h("button", { type: "button", class: "quiet", onclick: () => {
      if (playing) { stopPlaying(); play.textContent = "Play"; return; }
      play.textContent = "Pause";
      let shot = chosen.round >= last ? -1 : chosen.round;
      playing = setInterval(() => { shot += 1; show(shot); if (shot >= last) { stopPlaying(); play.textContent = "Play"; } }, Math.max(60, 4000 / (last + 1)));
    } }, "Play");
    body.replaceChildren(h("div", { class: "controls" },
      here.relations.length > 1 && h("label", {}, "Run", h("select", { id: "relation", onchange: (event) => { chosen.relation = event.target.value; chosen.round = null; again("relation"); } }, here.relations.map((one) => h("option", { value: relationName(one), selected: one === run }, relationName(one))))),
      run.matrices.length > 1 && h("div", { class: "choice", role: "radiogroup", "aria-label": "Heat map of" }, "Heat map of", run.matrices.map((one, place) => h("label", {}, h("input", { type: "radio", name: "matrix", id: `matrix-${place}`, value: one.name, checked: one === matrix, onchange: () => { chosen.matrix = one.name; again(`matrix-${place}`); } }), matrixWords(one)[0]))),
      last >= 0 && h("label", { class: "wide" }, "Round", slider, shown), last > 0 && play,
      matrix && run.communities && h("label", {}, h("input", { type: "checkbox", id: "grouped", checked: chosen.grouped, onchange: (event) => { chosen.grouped = event.target.checked; redraw("heat"); } }), "Order by community")),
    h("div", { class: "pair" }, matrix && last >= 0 ? heatMap(run, matrix) : [], clients && h("div", {}, run.communities ? communities(run) : [], clients)),
    h("div", { class: "trio" }, run.history.contributors ? contributorsByRound(run) : [], run.history.index ? indexByRound(run) : [], run.history.used ? usedByRound(run) : []));
    if (last >= 0) say();
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

  // ---- what the coordinator can learn --------------------------------------------------------------------------

  function attacks() {
    at("attacks").hidden = at("attacks-link").hidden = !data.attacks.length;
    const name = (one) => `${titled(one.label)}, ${one.secure ? "secure" : "plain"}, seed ${one.seed}`;
    at("attacks-body").replaceChildren(...[...new Set(data.attacks.map((one) => one.cell))].flatMap((place) => {
      const runs = data.attacks.filter((one) => one.cell === place).sort((a, b) => a.label.localeCompare(b.label, "en") || a.secure - b.secure || a.seed - b.seed);
      const attacks = [...new Set(runs.flatMap((one) => one.findings.map((found) => found.attack)))];
      const lines = attacks.map((attack) => ({ attack, found: runs.map((one) => one.findings.find((found) => found.attack === attack)) }));
      const first = (line) => line.found.find(Boolean), both = (found) => found && known(found.score) && known(found.guess);
      const columns = [
        { head: "Attack", text: true, value: (line) => line.attack },
        ...runs.flatMap((one, i) => [
          { head: name(one), title: `Score; rounds 1 to ${one.rounds}`, value: (line) => line.found[i]?.score, show: (line) => fixed(line.found[i]?.score, 3), mark: (line) => (both(line.found[i]) ? (line.found[i].verdict === "better than guessing" ? "bad" : "good") : "") },
          { head: "Guess", title: name(one), value: (line) => line.found[i]?.guess, show: (line) => fixed(line.found[i]?.guess, 3) }]),
        { head: "Measure", text: true, value: (line) => first(line).measure }, { head: "What is learnt", text: true, value: (line) => first(line).learnt },
      ];
      const cell = data.cells[place].name, key = `attacks-${place}`;
      const drawn = lines.filter((line) => line.found.some(both));
      const draw = (width) => {
        const row = 22, head = 24, tops = drawn.map((_, i) => i * (head + runs.length * row + 8));
        const height = drawn.length * (head + runs.length * row + 8) + 34, left = Math.min(230, width * 0.42), x = scale(0, 1, left, width - 16);
        const grid = ticks(0, 1, width < 560 ? 2 : 5).map((value) => [s("line", { x1: x(value), x2: x(value), y1: 0, y2: height - 30, stroke: theme("line") }), word(x(value), height - 14, value, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 })]);
        const parts = drawn.map((line, index) => s("g", {}, word(4, tops[index] + 16, line.attack, { "font-weight": 600, ...halo() }), line.found.map((found, i) => {
          const y = tops[index] + head + i * row + row / 2, label = name(runs[i]);
          if (!both(found)) return word(left - 10, y + 4, `${label}: none`, { "text-anchor": "end", fill: theme("soft"), "font-size": 10 });
          const colour = found.verdict === "better than guessing" ? theme("bad") : theme("good");
          return s("g", { "data-tip": `${line.attack}; ${label}: ${fixed(found.score, 3)}, a guess ${fixed(found.guess, 3)}`, "data-attack": line.attack },
            word(left - 10, y + 4, label, { "text-anchor": "end", fill: theme("soft"), "font-size": 10 }),
            s("line", { x1: x(found.guess), x2: x(found.score), y1: y, y2: y, stroke: colour, "stroke-width": 3 }),
            s("line", { x1: x(found.guess), x2: x(found.guess), y1: y - 7, y2: y + 7, stroke: theme("ink"), "stroke-width": 2 }),
            s("circle", { cx: x(found.score), cy: y, r: 5, fill: colour }));
        })));
        return canvas(width, height, `Scores of attacks beside guesses on ${cell}`, grid, parts);
      };
      const rows = () => [["attack", "run", "score", "guess", "worst_client"], ...lines.flatMap((line) => line.found.flatMap((found, i) => (found ? [[line.attack, name(runs[i]), found.score, found.guess, found.worst]] : [])))];
      return [
        drawn.length ? figure(key, "Scores beside guesses", `${cell}; lines are guesses, circles the scores of attacks`, draw, rows, false) : "",
        table(key, "Attacks", `${cell}; means over the clients, 1 is all there is to know`, columns, lines),
        ...runs.map((one) => h("article", { class: "card", "data-sentences": one.secure ? "secure" : "plain" }, h("header", {}, h("h3", {}, name(one), h("small", {}, one.command))), h("ul", {}, one.findings.map((found) => h("li", {}, h("strong", {}, `${found.attack}: `), found.sentence)))))];
    }));
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

  function pick() {
    if (chosen.cell >= data.cells.length) chosen.cell = 0;
    at("cell").replaceChildren(...data.cells.map((one, index) => h("option", { value: index, selected: index === chosen.cell }, one.name + (data.tables.length > 1 ? ` (${one.task})` : ""))));
  }
  function drawCell() {
    drawings.length = 0;
    sweeps(); convergence(); clients(); similarity(); cost(); attacks();
    redraw();
  }
  function drawParts() {
    facts(); complaints(); summary(); pick(); runs(); drawCell();
  }
  at("cell").addEventListener("change", (event) => { chosen.cell = Number(event.target.value); chosen.relation = ""; chosen.round = null; drawCell(); });

  drawParts();

  // ---- live ---------------------------------------------------------------------------------------------------

  if (data.live) {
    const take = (fresh) => {
      const relations = cell().relations, followed = chosen.round === null || !relations.length || chosen.round >= (relations.find((one) => relationName(one) === chosen.relation) || relations[0]).rounds.length - 1;
      const name = cell().name;
      data = fresh;
      chosen.cell = Math.max(0, data.cells.findIndex((one) => one.name === name));
      if (followed) chosen.round = null;
      drawAll();
    };
    const open = () => data.runs.filter((run) => !run.finished).length;
    follow(1500, take, () => (open() ? `live, ${plural(open(), "run")} in progress` : "live, all runs finished"), "the runs cannot be read at the moment");
  }
