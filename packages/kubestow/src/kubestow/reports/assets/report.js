"use strict";

// Draws the figures of a report from the data embedded in the page. Text from the data is only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const COLORS = ["#2f81d6", "#d98a00", "#1a9e6c", "#c2609a", "#d5602a", "#38a3c4", "#8a8f98", "#9a6bd1"];
  const HEAT = [[59, 111, 182], [120, 165, 200], [232, 206, 96], [222, 128, 52], [190, 44, 40]];
  const SCALES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];
  const BYTES = new Set(["memory", "ephemeral-storage"]);
  const redraws = [];

  // -- elements ------------------------------------------------------------------------------------------------------

  function make(tag, properties = {}, ...children) {
    const found = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in found) found[name] = value;
      else found.setAttribute(name, value);
    }
    found.append(...children);
    return found;
  }

  function draw(tag, attributes, text) {
    const found = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    if (text !== undefined) found.textContent = text;
    return found;
  }

  function choice(label, options, changed) {
    const select = make("select", { onchange: () => changed(select.value) });
    for (const [value, text] of options) select.append(make("option", { value, textContent: text }));
    return { select, label: make("label", {}, label, select) };
  }

  // -- numbers -------------------------------------------------------------------------------------------------------

  const count = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  const percent = (share) => `${(100 * share).toFixed(1)} %`;

  function amount(resource, value) {
    const fraction = { maximumFractionDigits: 1 };
    if (resource === "cpu") return `${(value / 1000).toLocaleString("en-US", fraction)} cores`;
    if (BYTES.has(resource)) return `${(value / 2 ** 30).toLocaleString("en-US", fraction)} GiB`;
    return count(value);
  }

  function duration(seconds) {
    const units = [[86400, "d"], [3600, "h"], [60, "min"]];
    for (const [size, name] of units) if (seconds >= 2 * size) return `${(seconds / size).toFixed(1)} ${name}`;
    return `${seconds.toFixed(seconds < 10 ? 2 : 0)} s`;
  }

  // -- the cluster over time -----------------------------------------------------------------------------------------

  function timelineFigure(figure) {
    const lines = data.timelines;
    const chosen = new Set(data.resources.slice(0, 5));
    const color = (name) => COLORS[Math.max(0, data.resources.indexOf(name)) % COLORS.length];
    const fieldset = make("fieldset", {}, make("legend", { textContent: "resources", className: "note" }));
    for (const resource of data.resources) {
      const box = make("input", { type: "checkbox", checked: chosen.has(resource) });
      box.onchange = () => {
        if (box.checked) chosen.add(resource);
        else chosen.delete(resource);
        redraw();
      };
      fieldset.append(make("label", {}, box, swatch(color(resource)), resource));
    }
    const readout = make("p", { className: "readout", role: "status" });
    const charts = make("div", { className: "charts" });
    figure.append(make("div", { className: "controls" }, fieldset), charts, readout);
    const shares = (kind) => () =>
      lines.flatMap((line, side) =>
        [...chosen].map((name) => ({ name, side, time: line.time, values: line[kind][name], color: color(name) })));
    const counted = (name) => () =>
      lines.map((line, side) => ({ name, side, time: line.time, values: line.counts[name], color: COLORS[side] }));
    const kinds = [
      ["requested share", shares("utilisation"), percent, true],
      ["fragmentation", shares("fragmentation"), percent, true],
      ["pending pods", counted("pending"), count, false],
      ["pods on nodes", counted("pods"), count, false],
      ["nodes in use", counted("nodes in use"), count, false],
    ];
    const drawn = kinds.map(([title, series, format, isShare]) => {
      const box = make("div", {}, make("h3", { textContent: title }));
      charts.append(box);
      return lineChart(box, title, series, format, isShare, readout);
    });
    const redraw = () => drawn.forEach((each) => each());
    onResize(charts, redraw);
  }

  function swatch(color) {
    const found = draw("svg", { class: "swatch", viewBox: "0 0 8 8", "aria-hidden": "true" });
    found.append(draw("rect", { width: 8, height: 8, rx: 2, fill: color }));
    return found;
  }

  function lineChart(box, title, series, format, isShare, readout) {
    const svg = draw("svg", { tabindex: 0, role: "img", "aria-label": title });
    box.append(svg);
    const height = 170, left = 52, right = 10, upper = 10, lower = 20;
    let width = 0, lines = [], cursor = null, latest = 1, at = -1;

    const x = (time) => left + ((width - left - right) * Math.min(time, latest)) / latest;

    function redraw() {
      width = Math.max(220, box.clientWidth);
      lines = series();
      latest = Math.max(...data.timelines.map(lastChange)) || 1;
      const most = lines.reduce((value, line) => line.values.reduce((a, b) => Math.max(a, b), value), 0);
      const highest = isShare ? SCALES.find((scale) => scale >= most) || 1 : Math.max(1, most);
      const y = (value) => upper + (height - upper - lower) * (1 - Math.min(1, value / highest));
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      svg.replaceChildren();
      for (const part of isShare || highest % 2 === 0 ? [0, 0.5, 1] : [0, 1]) {
        svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: y(part * highest), y2: y(part * highest) }));
        const label = isShare ? `${+(100 * part * highest).toFixed(1)} %` : count(part * highest);
        svg.append(draw("text", { x: left - 6, y: y(part * highest) + 4, "text-anchor": "end" }, label));
      }
      svg.append(draw("text", { x: left, y: height - 5 }, "0"));
      svg.append(draw("text", { x: width - right, y: height - 5, "text-anchor": "end" }, duration(latest)));
      for (const line of lines) {
        const points = line.values.map((value, i) => `${x(line.time[i]).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
        const dash = line.side ? { "stroke-dasharray": "5 4" } : {};
        svg.append(draw("polyline", { points, fill: "none", stroke: line.color, "stroke-width": 1.8, ...dash }));
      }
      cursor = draw("line", { class: "cursor", y1: upper, y2: height - lower, visibility: "hidden" });
      svg.append(cursor);
    }

    function show(index) {
      const times = data.timelines[0].time;
      at = Math.max(0, Math.min(times.length - 1, index));
      cursor.setAttribute("x1", x(times[at]));
      cursor.setAttribute("x2", x(times[at]));
      cursor.setAttribute("visibility", "visible");
      const values = lines.map((line) => {
        const side = data.timelines.length > 1 ? `${data.timelines[line.side].name} ` : "";
        return `${side}${line.name} ${format(line.values[latestBefore(line.time, times[at])])}`;
      });
      readout.textContent = `${title} after ${duration(times[at])}: ${values.join(", ")}`;
    }

    svg.addEventListener("pointermove", (event) => {
      const place = svg.getBoundingClientRect();
      const time = (((event.clientX - place.left) * (width / place.width) - left) / (width - left - right)) * latest;
      show(latestBefore(data.timelines[0].time, time));
    });
    svg.addEventListener("keydown", (event) => {
      const last = data.timelines[0].time.length - 1;
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    });
    return redraw;
  }

  // A little later than the last change: a simulation also waits until nothing is left to happen.
  function lastChange(line) {
    const all = [line.utilisation, line.fragmentation, line.counts].flatMap(Object.values);
    let at = line.time.length - 1;
    while (at > 0 && all.every((values) => values[at] === values[at - 1])) at--;
    return Math.min(1.05 * line.time[at], line.time[line.time.length - 1]);
  }

  function latestBefore(times, time) {
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // -- the nodes -----------------------------------------------------------------------------------------------------

  function nodesFigure(figure) {
    let resource = data.resources[0] || "pods", order = "name";
    const maps = [];
    const redraw = () => maps.forEach((map) => map());
    const resources = [...data.resources.map((name) => [name, name]), ["pods", "number of pods"]];
    const byResource = choice("colour", resources, (value) => { resource = value; redraw(); });
    const orders = [["name", "name"], ["zone", "zone"], ["share", "share, highest first"]];
    const byOrder = choice("order", orders, (value) => { order = value; redraw(); });
    const controls = make("div", { className: "controls" }, byResource.label, byOrder.label);
    const readout = make("p", { className: "readout", role: "status" });
    controls.append(make("span", { className: "note", textContent: "0 %" }), legend());
    controls.append(make("span", { className: "note", textContent: "100 %" }));
    const sides = make("div", { className: "maps" });
    figure.append(controls, readout, sides);
    for (const cluster of data.clusters) {
      const box = make("div", { className: "map" });
      if (cluster.name) box.append(make("h3", { textContent: cluster.name }));
      sides.append(box);
      maps.push(nodeMap(box, cluster, () => resource, () => order, readout));
      onResize(box, redraw);
    }
    redraws.push(redraw);
  }

  function legend() {
    const svg = draw("svg", { class: "legend", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (let i = 0; i < 50; i++) svg.append(draw("rect", { x: 2 * i, width: 2.2, height: 10, fill: heat(i / 49) }));
    return svg;
  }

  function heat(share) {
    const place = Math.max(0, Math.min(1, share)) * (HEAT.length - 1);
    const index = Math.min(HEAT.length - 2, Math.floor(place));
    const mixed = HEAT[index].map((low, i) => Math.round(low + (HEAT[index + 1][i] - low) * (place - index)));
    return `rgb(${mixed.join(",")})`;
  }

  function nodeMap(box, cluster, resource, order, readout) {
    const total = cluster.names.length;
    const canvas = make("canvas", { tabIndex: 0, role: "img" });
    canvas.setAttribute("aria-label", `${cluster.name} nodes coloured by requested share; arrow keys choose a node`);
    box.append(canvas);
    let places = [], columns = 1, size = 10, at = -1;

    const allocatable = (node, name) => cluster.capacities[cluster.capacity[node]][name];
    const mostPods = cluster.pods.reduce((most, pods) => Math.max(most, pods), 1);

    function share(node) {
      if (resource() === "pods") return cluster.pods[node] / mostPods;
      const capacity = allocatable(node, resource());
      return capacity ? cluster.requested[resource()][node] / capacity : null;
    }

    function sorted() {
      const nodes = Array.from({ length: total }, (_, node) => node);
      if (order() === "share") nodes.sort((a, b) => (share(b) ?? -1) - (share(a) ?? -1) || a - b);
      if (order() === "zone") {
        nodes.sort((a, b) => (cluster.zones[a] < cluster.zones[b] ? -1 : cluster.zones[a] > cluster.zones[b] ? 1 : a - b));
      }
      return nodes;
    }

    function redraw() {
      const width = Math.max(200, box.clientWidth), ratio = window.devicePixelRatio || 1;
      size = Math.max(3, Math.min(28, Math.floor(Math.sqrt((width * 420) / Math.max(1, total)))));
      columns = Math.max(1, Math.floor(width / size));
      const height = Math.max(1, Math.ceil(total / columns)) * size;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.height = `${height}px`;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      const empty = getComputedStyle(document.body).getPropertyValue("--line");
      places = sorted();
      const gap = size > 6 ? 1 : 0.5;
      places.forEach((node, place) => {
        const value = share(node);
        context.fillStyle = value === null ? resolved(empty) : heat(value);
        context.fillRect((place % columns) * size, Math.floor(place / columns) * size, size - gap, size - gap);
      });
      if (at >= 0) mark(context);
    }

    function resolved(value) {
      box.style.color = value;
      const found = getComputedStyle(box).color;
      box.style.color = "";
      return found;
    }

    function mark(context) {
      context.strokeStyle = getComputedStyle(document.body).color;
      context.lineWidth = 2;
      context.strokeRect((at % columns) * size + 1, Math.floor(at / columns) * size + 1, Math.max(2, size - 3), Math.max(2, size - 3));
    }

    function show(place) {
      if (place < 0 || place >= total || place === at) return;
      at = place;
      redraw();
      const node = places[at];
      const zone = cluster.zones[node] ? `, zone ${cluster.zones[node]}` : "";
      const amounts = data.resources.filter((name) => allocatable(node, name)).map((name) => {
        const used = cluster.requested[name][node], capacity = allocatable(node, name);
        return `${name} ${amount(name, used)} of ${amount(name, capacity)} (${percent(used / capacity)})`;
      });
      const side = cluster.name ? `${cluster.name}: ` : "";
      readout.textContent = `${side}${cluster.names[node]}${zone}: ${count(cluster.pods[node])} pods; ${amounts.join("; ")}`;
    }

    function placeOf(event) {
      const rectangle = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - rectangle.left) / size);
      return column < columns ? Math.floor((event.clientY - rectangle.top) / size) * columns + column : -1;
    }

    const listPods = () => { if (at >= 0) showPodsOf(cluster.names[places[at]]); };
    canvas.addEventListener("pointermove", (event) => show(placeOf(event)));
    canvas.addEventListener("click", (event) => { show(placeOf(event)); listPods(); });
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter") listPods();
      const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0, End: total - 1 };
      if (moves[event.key] === undefined) return;
      event.preventDefault();
      show(at < 0 ? 0 : moves[event.key]);
    });
    return redraw;
  }

  // -- lists ---------------------------------------------------------------------------------------------------------

  // A table with a search field and pages. A column is [heading, (row) => text, class of its cells].
  function listing(figure, { label, total, columns, filters = [] }) {
    const perPage = 50;
    let rows = [], first = 0;
    const search = make("input", { type: "search", oninput: () => refresh() });
    const status = make("span", { role: "status", className: "note" });
    const previous = make("button", { type: "button", textContent: "Previous", onclick: () => turn(-perPage) });
    const next = make("button", { type: "button", textContent: "Next", onclick: () => turn(perPage) });
    const body = make("tbody");
    const chosen = new Map();
    const controls = make("div", { className: "controls" }, make("label", {}, "search", search));
    for (const [name, values, of] of filters) {
      const options = [["", "all"], ...values.map((value) => [value, value])];
      controls.append(choice(name, options, (value) => { chosen.set(of, value); refresh(); }).label);
    }
    controls.append(previous, next, status);
    const heads = columns.map(([heading, , kind]) => make("th", { scope: "col", textContent: heading, className: kind || "" }));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
    const scroll = make("div", { className: "scroll", tabIndex: 0, role: "region" }, table);
    scroll.setAttribute("aria-label", label);
    figure.append(controls, scroll);

    function refresh() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows = [];
      for (let row = 0; row < total; row++) {
        if ([...chosen].some(([of, value]) => value && of(row) !== value)) continue;
        if (words.length) {
          const text = columns.map(([, of]) => of(row)).join("\n").toLowerCase();
          if (!words.every((word) => text.includes(word))) continue;
        }
        rows.push(row);
      }
      first = 0;
      fill();
    }

    function turn(by) {
      first = Math.max(0, first + by);
      fill();
    }

    function fill() {
      const shown = rows.slice(first, first + perPage);
      body.replaceChildren(...shown.map((row) => {
        const cells = columns.map(([, of, kind]) => make("td", { textContent: of(row), className: kind || "" }));
        return make("tr", {}, ...cells);
      }));
      previous.disabled = first === 0;
      next.disabled = first + perPage >= rows.length;
      status.textContent = rows.length ? `${count(first + 1)} to ${count(first + shown.length)} of ${count(rows.length)}` : "none";
    }

    refresh();
    return (words) => { search.value = words; refresh(); };
  }

  let showPodsOf = () => {};

  function podsFigure(figure) {
    const pods = data.pods, names = pods.names;
    const seconds = (value) => (value === null ? "" : value.toFixed(3));
    const columns = [
      ["pod", (row) => names[row]],
      ["state", (row) => pods.state[row]],
      ["node", (row) => pods.nodes[pods.node[row]]],
      ["owner", (row) => pods.owners[pods.owner[row]]],
      ["priority", (row) => String(pods.priority[row]), "number"],
      ["arrived, s", (row) => seconds(pods.arrived[row]), "number"],
      ["bound, s", (row) => seconds(pods.bound[row]), "number"],
      ["why", (row) => pods.messages[pods.message[row]], "long"],
    ];
    const filters = [["state", [...new Set(pods.state)], (row) => pods.state[row]]];
    if (pods.change) {
      columns.splice(1, 0, ["change", (row) => pods.change[row]], ["node in the baseline", (row) => pods.before[row]]);
      filters.unshift(["change", [...new Set(pods.change)], (row) => pods.change[row]]);
    }
    const search = listing(figure, { label: "Pods", total: names.length, columns, filters });
    showPodsOf = (node) => {
      search(node);
      figure.parentElement.scrollIntoView();
    };
  }

  function decisionsFigure(figure) {
    const { plugins, nodes, totals, scores, rejected, reason, reasons } = data.decisions;
    const fits = (row) => row < nodes.length;
    const columns = [
      ["node", (row) => (fits(row) ? nodes[row] : rejected[row - nodes.length])],
      ["total", (row) => (fits(row) ? String(totals[row]) : ""), "number"],
      ...plugins.map((plugin, i) => [plugin, (row) => (fits(row) ? String(scores[row][i]) : ""), "number"]),
      ["rejected by", (row) => (fits(row) ? "" : reasons[reason[row - nodes.length]]), "long"],
    ];
    const filters = [["verdict", ["fits", "rejected"], (row) => (fits(row) ? "fits" : "rejected")]];
    listing(figure, { label: "Nodes", total: nodes.length + rejected.length, columns, filters });
  }

  // -- the page ------------------------------------------------------------------------------------------------------

  function onResize(box, redraw) {
    let width = 0;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      requestAnimationFrame(redraw);
    }).observe(box);
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.onclick = () => {
    const root = document.documentElement.style;
    root.colorScheme = (root.colorScheme || (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
    redraws.forEach((redraw) => redraw());
  };
  dark.addEventListener("change", () => redraws.forEach((redraw) => redraw()));

  const figures = { timeline: timelineFigure, nodes: nodesFigure, pods: podsFigure, decisions: decisionsFigure };
  for (const part of document.querySelectorAll("[data-figure]")) {
    part.hidden = false;
    figures[part.dataset.figure](part.querySelector(".figure"));
  }
})();
