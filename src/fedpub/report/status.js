  // The page of `fedpub status --live`: one federation, from its coordinator's folder.
  let data = JSON.parse(document.getElementById("data").textContent);
  const chosen = { sort: {} }; // the reader's choices; they are kept when the page redraws itself
  const placeName = () => data.folder;

  const two = (value) => String(value).padStart(2, "0");
  function clock(seconds) {
    const at = new Date(1000 * seconds);
    return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
  function lasting(seconds) {
    if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return seconds < 129600 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
  }
  function bytes(count) {
    const unit = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([size]) => count >= size);
    return unit ? `${(count / unit[0]).toFixed(count / unit[0] >= 10 ? 1 : 2)} ${unit[1]}` : `${count} B`;
  }
  const last = (values) => values.findLast(known);

  function overview() {
    const { seconds, validation } = data.history, recent = seconds.slice(-10);
    const shown = [[data.state, "state"], [`${data.round} of ${data.rounds}`, "rounds"]];
    if (recent.length) shown.push([`${fixed(recent.at(-1))} s`, "last round"]);
    if (recent.length && data.state === "running") shown.push([lasting(mean(recent) * (data.rounds - data.round)), "left, about"]);
    if (known(last(validation))) shown.push([fixed(scaled(last(validation))), "validation"]);
    shown.push([bytes(data.bytes_up), "up"], [bytes(data.bytes_down), "down"]);
    at("facts").replaceChildren(...shown.map(([value, name]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    at("title").textContent = `${data.title}, ${plural(data.sites.length, "site")}`;
    document.title = `${data.round} of ${data.rounds}, ${data.state} — fedpub status`;
    const bar = at("progress");
    bar.setAttribute("aria-valuemax", data.rounds);
    bar.setAttribute("aria-valuenow", data.round);
    bar.firstElementChild.style.width = `${(100 * data.round) / Math.max(1, data.rounds)}%`;
    at("foot").textContent = `Shown by fedpub ${data.version}; bytes are those of messages in rounds.`;
    const way = { stopped: "No coordinator is running. Every finished round is saved; fedpub coordinator start --resume continues.", "not begun": "The run begins when all admitted sites are connected." }[data.state];
    at("notice").replaceChildren(...(way ? [h("p", { class: "box" }, way)] : []));
    age();
  }
  function age() {
    at("lead").textContent = `Folder ${data.folder}. ${known(data.updated) ? `Last round ${lasting(Date.now() / 1000 - data.updated)} ago.` : "No round is finished."}`;
  }
  // Fractions are shown in percent, as in the report; errors of a regression may be larger than one.
  const scaled = (value) => (data.history.validation.some((one) => known(one) && Math.abs(one) > 1) ? value : 100 * value);

  function line(name, title, small, values, low) {
    const { round } = data.history, points = round.map((number, i) => [number, values[i]]).filter((point) => known(point[1]));
    const draw = (width, say) => {
      const left = 46, right = width - 8, tall = 220, final = Math.max(round.at(-1), 2), all = points.map((point) => point[1]);
      const least = low ?? Math.min(...all), most = Math.max(...all), pad = (most - least || 1) * 0.06;
      const x = scale(1, final, left, right), y = scale(least - (known(low) ? 0 : pad), most + pad, tall - 34, 10);
      const guide = s("line", { y1: 10, y2: tall - 34, stroke: theme("soft"), "stroke-dasharray": "3 3", visibility: "hidden", "data-transient": true });
      const read = ([number, value]) => { guide.setAttribute("x1", x(number)); guide.setAttribute("x2", x(number)); guide.setAttribute("visibility", "visible"); return `Round ${number}: ${fixed(value)}`; };
      let current = points.length - 1;
      const move = (event) => {
        const box = surface.getBoundingClientRect(), wanted = 1 + ((event.clientX - box.left) / box.width) * (final - 1);
        current = points.reduce((best, point, i) => (Math.abs(point[0] - wanted) < Math.abs(points[best][0] - wanted) ? i : best), 0);
        showTip(read(points[current]), event.clientX, event.clientY);
      };
      const surface = s("rect", { x: left, y: 10, width: Math.max(1, right - left), height: tall - 44, fill: "transparent", tabindex: 0, role: "slider", "aria-label": `${title} by round`, "aria-valuemin": 1, "aria-valuemax": final, "aria-valuenow": points.at(-1)[0], "data-reads": true, onpointermove: move, onpointerdown: move,
        onpointerleave: () => { guide.setAttribute("visibility", "hidden"); hideTip(); },
        onblur: () => guide.setAttribute("visibility", "hidden"),
        onkeydown: (event) => { const step = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length }[event.key]; if (!step) return; event.preventDefault(); current = Math.min(points.length - 1, Math.max(0, current + step)); surface.setAttribute("aria-valuenow", points[current][0]); say.textContent = read(points[current]); } });
      const grid = ticks(least, most + pad, 5).map((value) => [s("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: theme("line") }), word(left - 7, y(value) + 4, shortNumber(value), { "text-anchor": "end", fill: theme("soft"), "font-size": 11 })]);
      const below = ticks(1, final, 5).filter((value) => Number.isInteger(value) && value > 1 + final / 20).concat([1]).map((value) => word(x(value), tall - 16, value, { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
      const path = points.map(([number, value], i) => `${i ? "L" : "M"}${x(number).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      const mark = points.length === 1 ? s("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 3, fill: theme("accent") }) : s("path", { d: path, fill: "none", stroke: theme("accent"), "stroke-width": 1.8, "stroke-linejoin": "round" });
      return canvas(width, tall, title, grid, below, s("g", { "data-line": name }, mark), guide, surface, word((left + right) / 2, tall - 1, "round", { "text-anchor": "middle", fill: theme("soft"), "font-size": 11 }));
    };
    return points.length ? figure(name, title, small, draw, () => [["round", name], ...points]) : "";
  }
  function rounds() {
    const { seconds, validation, round } = data.history;
    if (!round.length) return at("rounds-body").replaceChildren(h("p", { class: "note" }, "No round is finished."));
    at("rounds-body").replaceChildren(
      line("seconds", "Seconds per round", "from question to average, waiting included", seconds, 0),
      line("validation", "Validation per round", "mean over sites", validation.map((value) => (known(value) ? scaled(value) : null))));
  }

  function state(site) {
    if (site.removed) return "removed";
    if (!site.rounds) return data.round ? "not yet in a round" : "admitted";
    return site.last_round === data.round ? "in the last round" : `absent since round ${site.last_round + 1}`;
  }
  function sites() {
    const columns = [
      { head: "Site", text: true, value: (one) => one.site },
      { head: "State", text: true, value: state, mark: (one) => (one.removed ? "bad" : one.rounds && one.last_round === data.round ? "good" : "open") },
      { head: "Last round", value: (one) => one.last_round },
      { head: "Rounds", value: (one) => one.rounds },
      { head: "Validation", value: (one) => one.val, show: (one) => (known(one.val) ? fixed(scaled(one.val)) : "") },
      { head: "Left out", value: (one) => one.left_out, mark: (one) => (one.left_out ? "open" : "") },
      { head: "Refused", value: (one) => one.refused, mark: (one) => (one.refused ? "bad" : "") },
      { head: "Last problem", text: true, value: (one) => one.last_problem, mark: () => "said" },
    ];
    at("sites-body").replaceChildren(table("sites", plural(data.sites.length, "site"), "as of the last finished round", columns, data.sites));
  }
  function events() {
    if (!data.events.length) return at("events-body").replaceChildren(h("p", { class: "note" }, "None so far."));
    const columns = [
      { head: "Time", text: true, value: (one) => clock(one.time) },
      { head: "Round", value: (one) => one.round, show: (one) => one.round || "" },
      { head: "Site", text: true, value: (one) => one.site ?? "coordinator" },
      { head: "Event", text: true, value: (one) => one.event },
      { head: "Reason", text: true, value: (one) => one.reason, mark: () => "said" },
    ];
    const older = data.older_events ? `${plural(data.older_events, "older event")} in events.jsonl` : "the latest first";
    at("events-body").replaceChildren(table("events", plural(data.events.length, "event"), older, columns, data.events));
  }
  function drawParts() {
    drawings.length = 0;
    overview(); rounds(); sites(); events();
    redraw();
  }

  drawParts();
  setInterval(age, 1000);
  follow(2000, (fresh) => { data = fresh; drawAll(); }, () => `live, ${data.state}`, "the folder cannot be read at the moment");
