  // What all pages use: nodes, numbers as text, cards around tables and figures, axes, the theme, and asking for new data.
  // A page defines `data`, `chosen`, `placeName` and `drawParts`.

  const root = document.documentElement;
  const at = (id) => document.getElementById(id);

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
    const file = () => slug(`${name}-${placeName()}`);
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

  // ---- axes -----------------------------------------------------------------------------------------------------

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

  // ---- redrawing and the theme ----------------------------------------------------------------------------------

  function redraw(name) {
    hideTip();
    for (const one of drawings) if (one.place.isConnected && (!name || one.place.parentElement.dataset.figure === name)) one.redraw();
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

  // ---- live ---------------------------------------------------------------------------------------------------

  // Asks for the data every so many milliseconds; `take` gets data that is new, `state` is shown in the pill.
  function follow(every, take, state, unreadable) {
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
          if (!first || JSON.stringify(fresh) !== JSON.stringify(data)) take(fresh);
        }
        if (answer.ok || answer.status === 304) say(state());
        else say(unreadable, true);
      } catch {
        say("the server has stopped", true);
      }
      setTimeout(poll, every);
    };
    say("live");
    poll();
  }
