"use strict";
// The state comes as JSON, and merge patches (RFC 7396) keep it current. Everything is written as
// text nodes: what clients have sent is never read as HTML.
const $ = id => document.getElementById(id);
const views = [...document.querySelectorAll("main > section")].map(s => s.id);
let state = null, history_ = null, before = null, rates = {}, errorLog = [], order = "time", source = null, pool = "";

function el(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:")
    ? document.createElementNS("http:/" + "/www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map(child => child instanceof Node ? child : String(child)));
  return made;
}
function merge(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  if (target === null || typeof target !== "object" || Array.isArray(target)) target = {};
  for (const [name, value] of Object.entries(patch))
    if (value === null) delete target[name]; else target[name] = merge(target[name], value);
  return target;
}
const number = n => n === undefined || n === null ? "–" : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(Math.round(n));
const ms = n => n === undefined || n === null ? "–" : n < 1 ? n.toFixed(2) + " ms" : n < 100 ? n.toFixed(1) + " ms" : n < 1e3 ? Math.round(n) + " ms" : (n / 1e3).toFixed(1) + " s";
const mib = n => n === undefined || n === null ? "–" : n >= 1024 ? (n / 1024).toFixed(1) + " GiB" : (n < 10 ? n.toFixed(1) : Math.round(n)) + " MiB";
const many = (n, what) => n + " " + what + (n === 1 ? "" : "s");
const percent = n => Math.round(n * 100) + " %";
const time = at => new Date(at).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const parts = [["queue", "in the queue"], ["cpu", "on a processor"], ["core", "waiting for a processor"], ["blocked", "blocked: database, disk, network, sleep"], ["boot", "in the queue while its worker was starting"]];

function rows(id, list, none) {
  const columns = $(id).closest("table").querySelectorAll("th").length;
  const body = list.length ? list : [el("tr", {class: "empty"}, el("td", {colspan: columns}, none))];
  $(id).replaceChildren(...body);
}
const row = (cells, attributes = {}) => el("tr", attributes, ...cells.map((cell, index) =>
  cell instanceof Node && ["TD", "TH"].includes(cell.tagName) ? cell
    : el(index ? "td" : "td", typeof cell === "string" || cell instanceof Node ? {} : {class: "n"}, cell.n ?? cell)));
const n = text => ({n: text});

function bar(values, label) {
  const sum = values.reduce((a, b) => a + (b || 0), 0);
  const made = el("div", {class: "bar", role: "img", "aria-label": label});
  if (sum > 0) values.forEach((value, index) => {
    const piece = el("i", {class: parts[index][0]});
    piece.style.width = 100 * (value || 0) / sum + "%";
    made.append(piece);
  });
  return made;
}
function describe(values) {
  const sum = values.reduce((a, b) => a + (b || 0), 0);
  return sum > 0 ? values.map((value, index) => percent((value || 0) / sum) + " " + parts[index][1]).join(", ") : "no requests";
}
const poolNames = () => Object.keys(state.pools || {}).sort((a, b) => {
  const [one, other] = [state.pools[a], state.pools[b]];
  return (other.queued || 0) - (one.queued || 0) || (other.busy || 0) - (one.busy || 0) || (rates[b] || 0) - (rates[a] || 0) || a.localeCompare(b);
});
const chosen = () => poolNames().filter(name => !pool || name === pool);

// What blocked scripts wait for, in words; what is slow then, and what hangs if they do.
const waits = {
  disk: ["the disk is slow", "the disk hangs"],
  network: ["a database or another server is slow, not the disk", "a database or another server hangs"],
  file_lock: ["they wait for a lock of a file, such as that of a session", "a lock of a file, such as that of a session, is not released"],
  sleep: ["they sleep, as sleep() and usleep() do"],
  program: ["they wait for programs that they have started", "a program that they have started hangs"],
  other: ["a slow database, another server or a lock, not the disk"],
};
const cause = p => waits[(p.waits || {}).for] || ["a slow database, disk or network"];
const looks = p => p.waits ? " (" + p.waits.found + " of " + p.waits.of + " looks at blocked scripts)" : "";

// What the figures of a pool mean, in words: the worst first.
function findings(name) {
  const p = state.pools[name], found = [], r = p.recent || {}, part = r.parts || [];
  const [cpu, core, blocked] = part.map(v => v || 0), sum = (cpu || 0) + (core || 0) + (blocked || 0);
  const all = p.workers || 0, full = all > 0 && p.busy >= all, wait = (r.wait || [])[1] || 0;
  const hung = (state.running || []).filter(one => one.pool === name && Date.now() - one.begun > 10000);
  const add = (level, text) => found.push({level, text: name + ": " + text});
  if (hung.length) add("bad", hung.length + (hung.length > 1 ? " scripts have" : " script has") + " run for more than 10 s" +
    (hung.length >= all && all ? ", in every worker: " + (cause(p)[1] || "what they wait for (a database, another server, a lock) hangs") + looks(p) + "." : (cause(p)[1] ? ": " + cause(p)[1] + looks(p) : "") + ". See the running scripts below."));
  if (p.queued > 0 || (full && wait > 50)) {
    const load = p.load || {};
    const core_ = state.server && state.server.nearest === "cpu" && state.server.saturation > 0.9;
    if (core_ || (sum && core / sum > 0.25)) add("bad", "requests wait, and the processors are busy: more workers would not help; less work per request, a page cache or more processors would.");
    else if (load.waits_downstream) add("bad", "requests wait, and what scripts wait for has become slower than before: look at the database first.");
    else add("bad", (all === 1 ? "its only worker is busy and " : "all " + all + " workers are busy and ") + (p.queued ? many(p.queued, "request") + (p.queued === 1 ? " waits" : " wait") : "requests have waited") + (sum && blocked / sum > 0.5 ? ", while scripts are blocked for " + percent(blocked / sum) + " of their time: " + (p.waits && ["disk", "file_lock"].includes(p.waits.for) ? cause(p)[0] + looks(p) + "; more workers would hardly help." : "more workers would help (pm.max_children is " + (p.limit || "not set") + ").") : ": too few workers."));
  } else if (sum && r.count > 10 && blocked / sum > 0.8 && (r.script || [])[0] > 200)
    add("warn", "scripts are blocked for " + percent(blocked / sum) + " of their time: " + cause(p)[0] + looks(p) + ".");
  if (sum && r.count > 10 && core / sum > 0.25 && !p.queued) add("warn", "scripts wait for a processor for " + percent(core / sum) + " of their time: the processors are busy.");
  const o = p.opcache;
  if (o && (o.restarts > 0 || o.free < (o.used + o.free) * 0.05)) add("warn", "OPcache is full (" + mib(o.free) + " free of " + mib(o.used + o.free) + "): scripts are compiled again and again; raise opcache.memory_consumption.");
  const memory = memoryGrowth(name);
  if (memory) add("warn", memory);
  const failed = Object.values(p.failed || {}).reduce((a, b) => a + b, 0), now = recentErrors(name, p.failed);
  if (now > 0) add("bad", many(now, "request") + " failed in the last minute; see errors.");
  else if (failed > 0 && !now) add("info", many(failed, "request") + " failed since the start.");
  return found;
}
function memoryGrowth(name) {
  const samples = history_ && (name === pool ? history_.pool : poolNames().length === 1 ? history_.all : null);
  let known = (samples || []).filter(one => one.memory > 0 && one.workers > 0), at = Math.max(1, Math.floor(known.length / 4));
  if (known.length < 6) return null;
  // Workers that end take memory with them, and their zygote stays: it counts since there were as few as now.
  const last = known[known.length - 1], since = known.findIndex((one, index) => index >= at && Math.max(one.workers, known[index - 1].workers) <= last.workers);
  if (since !== at) [known, at] = [since < 0 ? [] : known.slice(since - 1), 1];
  if (known.length < 6) return null;
  // More workers need more memory, and that is no leak: it counts for each worker. It was measured up to ten
  // seconds before, so of two numbers of workers the one counts that makes the growth smaller.
  const end = known.length - 1;
  const each = (index, of) => known[index].memory / of(known[index].workers, known[index - 1].workers);
  const [first, before, now] = [known[at], each(at, Math.min), each(end, Math.max)];
  const grown = Math.min(last.memory - first.memory, (now - before) * last.workers) / 2 ** 20, hours = (last.at - first.at) / 3.6e6;
  // In the first minutes it has to be more, and without a pause: an application that warms up grows as well.
  const grows = known.length >= 18 ? grown > 32 && now > before * 1.25
    : grown > 48 && now > before * 1.5 && known.slice(1).every((one, index) => one.memory > known[index].memory);
  return grows ? "its memory has grown by " + mib(grown) + " in " + many(Math.max(1, Math.round(hours * 60)), "minute") + ": a leak, if that goes on (pm.max_requests ends it)." : null;
}
function recentErrors(name, counts) {
  const old = errorLog.length ? errorLog[0][name] || {} : counts || {};
  return Object.entries(counts || {}).reduce((sum, [cause, count]) => sum + count - (old[cause] || 0), 0);
}

const limits = {cpu: "processors", memory: "memory", max_children: "max_children", demand: "demand", downstream: "what scripts wait for", front: "the front's threads"};
// What is wrong with a node; null: nothing.
const nodeProblem = one => one.silent ? "silent for " + (one.silent < 120 ? one.silent + " s" : Math.round(one.silent / 60) + " minutes") : one.ready ? null : "not ready: " + one.reason;
const nodes = () => (state.nodes && state.nodes.list) || [];
// What is wrong with the other nodes: a line for each kind. What this node cannot hear is no fault of theirs.
function elsewhere() {
  const others = nodes().filter(one => !one.here), found = [];
  const isDeaf = state.nodes && (state.nodes.problem || nodes().some(one => one.here && one.silent));
  if (isDeaf) found.push({level: "warn", text: "the purge log is not reached: how other nodes are is not known here."});
  const silent = isDeaf ? [] : others.filter(one => one.silent), unready = others.filter(one => !one.silent && !one.ready);
  for (const [list, are] of [[silent, "are silent"], [unready, "are not ready"]]) {
    const names = list.slice(0, 5).map(one => one.name).join(", ") + (list.length > 5 ? " and " + (list.length - 5) + " more" : "");
    if (list.length) found.push({level: "bad", text: list.length === 1 ? "node " + names + ": " + nodeProblem(list[0]) + "." : list.length + " nodes " + are + ": " + names + "."});
  }
  return found;
}

const draw = {
  pools() {
    const levels = ["bad", "warn", "info"], others = elsewhere();
    const here = chosen().flatMap(findings).sort((a, b) => levels.indexOf(a.level) - levels.indexOf(b.level));
    const all = [...here.slice(0, 8 - others.length), ...others];
    $("findings").replaceChildren(...(all.length ? all : [{level: "good", text: "Nothing stands out: no request waits, and none fails."}]).map(f => el("li", {class: f.level}, f.text)));
    rows("pool-rows", chosen().map(name => {
      const p = state.pools[name], r = p.recent || {}, seats = el("span", {class: "seats", role: "img", "aria-label": p.busy + " busy, " + Math.max(0, (p.workers || 0) - p.busy) + " idle, " + (p.coming || 0) + " starting"});
      for (const seat of p.seats || "") seats.append(el("i", {class: "seat " + seat}));
      const split = [((r.wait || [])[0]) || 0, ...(r.parts || [])];
      return row([el("th", {scope: "row"}, name), seats, n(p.busy + "/" + (p.limit || p.workers || 0)), n(p.queued || 0), n(number(rates[name])), n(ms((r.wait || [])[1])), n(ms((r.script || [])[0])), n(ms((r.script || [])[1])), bar(split, describe(split)), n(mib(((p.memory || [])[0] || 0) / 1024))], name === pool ? {class: "chosen"} : {});
    }), "no pools");
    const running = (state.running || []).filter(one => !pool || one.pool === pool);
    rows("running-rows", running.map(one => row([n(ms(Math.max(0, Date.now() - one.begun))), one.pool, n(one.pid), el("td", {class: "wide"}, one.request || "not shown to this client")])), "no script has run for more than 0.2 s");
    rows("site-rows", (state.sites || []).map(one => row([el("td", {class: "wide"}, (one.hosts || []).join(", ").replace(/^\*$/, "every host")), one.runs, one.cached ? "yes" : "no"])), "no sites");
  },
  latency() {
    const samples = (history_ && (pool ? history_.pool : history_.all)) || [];
    heat(samples); split(samples);
    rows("sample-rows", samples.slice(-30).reverse().map(s => {
      const each = value => ms(s.scripts ? value / s.scripts / 1e3 : undefined);
      return row([time(s.at), n(s.requests), n(s.failed), n(s.refused), n(s.busy), n(s.queued), ...s.parts.map(value => n(each(value)))]);
    }), "the first sample comes within ten seconds");
  },
  routes() {
    const all = chosen().flatMap(name => Object.entries((state.pools[name] || {}).routes || {}).map(([route, r]) => ({name, route, r})));
    all.sort((a, b) => order === "time" ? b.r[1] - a.r[1] : (b.r[6] || 0) - (a.r[6] || 0));
    rows("route-rows", all.map(({name, route, r}) => row([el("th", {scope: "row"}, route), name, n(number(r[0])), n(ms(r[1])), n(ms(r[0] ? r[1] / r[0] : 0)), bar(r.slice(2, 6), describe(r.slice(2, 6))), n(r[6] ? mib(r[6] / 1024) : "–")])),
      state.server.view === "without requests" ? "routes are not shown to this client: pools run as several users" : "no requests yet; choose a pool to see its routes");
  },
  requests() {
    const hidden = state.server.view === "without requests";
    const list = Object.entries(state.requests || {}).map(([number, r]) => ({number, r})).filter(one => !pool || one.r[1] === pool).sort((a, b) => b.number - a.number);
    // A table that has not changed keeps its buttons, and so the focus.
    const shown = list.map(one => one.number + "@" + one.r[0]).join();
    if ($("request-rows").dataset.shown !== shown) {
      $("request-rows").dataset.shown = shown;
      rows("request-rows", list.map(({number, r}) => {
        const open = el("button", {type: "button", class: "link"}, r[2]);
        open.addEventListener("click", () => openRequest(number));
        return row([time(r[0]), r[1] || "–", open, n(r[3] >= 500 ? el("strong", {class: "bad"}, r[3]) : r[3]), n(ms(r[4]))]);
      }), hidden ? "requests are not shown to this client: pools run as several users" : "none: since the start, no request was slow or failed");
    }
    const stacks = Object.entries(state.stacks || {}).filter(([, s]) => !pool || s[1] === pool).sort((a, b) => b[1][0] - a[1][0]), ids = stacks.map(([id]) => id).join();
    if ($("stacks").dataset.shown !== ids) {
      $("stacks").dataset.shown = ids;
      $("stacks").replaceChildren(...stacks.map(([, s]) => el("article", {class: "card"}, el("h4", {}, s[1] + ": " + s[2]),
        el("p", {}, time(s[0]) + (s[3] ? ", request " + s[3] : "") + (s[5] ? ": " + s[5] : "")), ...(s[4] || []).length ? [el("ol", {}, ...s[4].map(call => el("li", {}, el("code", {}, call))))] : [])));
      if (!stacks.length) $("stacks").append(el("p", {}, state.server.view !== "whole" ? "Not shown to this client." : "None. With request_slowlog_timeout and a slow log, a script that takes longer has its stack here."));
    }
  },
  sizing() {
    $("sizing-cards").replaceChildren(...chosen().map(name => {
      const p = state.pools[name], load = p.load || {}, used = load.saturation || 0, level = used > 0.95 ? "bad" : used > 0.8 ? "warn" : "";
      const fill = el("i", level ? {class: level} : {});
      fill.style.width = Math.min(100, used * 100) + "%";
      const card = el("article", {class: "card"}, el("h3", {}, name),
        el("div", {class: "meter", role: "img", "aria-label": percent(used) + " of the nearest limit"}, fill),
        el("p", {}, used < 0.01 ? "Idle: no limit is near." : percent(used) + " of the nearest limit is used: " + (limits[load.nearest] || "–") + ". " +
          (used > 1 ? "Requests wait or are refused." : used > 0.8 ? "Little headroom: a tenth more requests come close." : (used < 0.1 ? "More than ten" : "About " + (1 / used).toFixed(1)) + " times the requests would fit.")));
      const advice = used <= 0.8 ? "" : load.nearest === "max_children" ? "Raise pm.max_children, if memory and processors allow." : load.nearest === "cpu" ? "Less work per request (page cache, OPcache), or more processors." : load.nearest === "memory" ? "Less memory per worker, or more memory." : "";
      const growth = memoryGrowth(name);
      for (const text of [advice, growth && "Its" + growth.slice(3)]) if (text) card.append(el("p", {}, el("strong", {}, text)));
      const facts = [["pm", p.pm], ["workers", p.workers + " of " + (p.limit || "–")], ["needed", load.workers === undefined ? "–" : load.workers.toFixed(1)], ["processors", load.cores === undefined ? "–" : load.cores.toFixed(2)], ["private memory", (p.memory || [])[0] ? mib(p.memory[0] / 1024) : "–"], ["peak memory p99", (p.memory || [])[2] ? mib(p.memory[2] / 1024) : "–"]];
      if (p.size) facts.push(["pm = auto wants", p.size.workers + ", bound by " + (limits[p.size.binding] || p.size.binding)], ...Object.entries(p.size.terms || {}).map(([term, value]) => [limits[term] || term, value]));
      card.append(el("dl", {}, ...facts.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value)))));
      return card;
    }));
  },
  cache() {
    const c = state.cache;
    $("purge-token").hidden = !state.purges;
    $("cache-note").textContent = !c ? "No site has a page cache." : number(c.memory.pages) + " pages in memory, " + mib(c.memory.bytes / 2 ** 20) + " of " + mib(c.memory.limit_bytes / 2 ** 20) + ", " + number(c.memory.evicted) + " evicted" + (c.disk ? "; " + number(c.disk.pages) + " pages on disk" : "") + ".";
    const log = state.purge_log;
    $("purge-log").hidden = !log;
    if (log) $("purge-log").textContent = "Purges reach " + (!(log.peers || []).length
      ? many(log.nodes, "other node") + " over a log that " + (log.connected ? "is connected" : "is not reached, and " + number(log.waiting) + " wait")
      : log.peers.map(p => p.address + (p.connected ? "" : " (not connected)") + (p.behind ? " (" + number(p.behind) + " behind)" : "")).join(", ")) + ".";
    rows("cache-rows", ((c && c.sites) || []).map(s => {
      const r = s.requests || {}, of = (...names) => names.reduce((sum, name) => sum + (r[name] || 0), 0);
      const hits = of("hit"), stale = of("stale", "updating", "revalidated"), bypassed = of("bypass"), all = Object.values(r).reduce((a, b) => a + b, 0);
      return row([el("th", {scope: "row"}, s.site), n(number(all)), n(all ? percent((hits + stale) / all) : "–"), n(number(hits)), n(number(stale)), n(number(all - hits - stale - bypassed)), n(number(bypassed)), n(ms(s.saved_script_seconds * 1e3))]);
    }), "no site has a page cache");
    rows("opcache-rows", chosen().filter(name => state.pools[name].opcache).map(name => {
      const o = state.pools[name].opcache;
      return row([el("th", {scope: "row"}, name), mib(o.used) + " of " + mib(o.used + o.free + o.wasted), n(mib(o.free)), n(o.scripts), n(o.restarts)]);
    }), "not measured yet, or no OPcache");
  },
  errors() {
    const help = {queue_full: "more workers, or a longer queue", queue_timeout: "more workers, or faster scripts", terminated: "request_terminate_timeout: see the slow log", worker_died: "see the log: a crash, or the memory of the machine", invalid_response: "see the log", no_workers: "PHP does not start: see the log", wait_too_long: "overload: see the overload page of the guide", shed: "overload: see the overload page of the guide", deadline: "request_deadline_header", crash_limit: "this page kills its workers: see the log", client_closed: "the client left: slow pages", client_closed_queued: "the client left while it waited", body_unreadable: "the disk of spool_dir",
      bailout: "a fatal error: see the log", signal: "a crash of PHP or an extension", failed: "see the log", memory_growth: "memory is short", max_private_memory: "max_private_memory"};
    const usual = ["max_requests", "idle", "reload", "shutdown"];
    const list = chosen().flatMap(name => {
      const p = state.pools[name], old = (errorLog[0] || {})[name] || {};
      const of = (counts, kind) => Object.entries(counts || {}).map(([cause, count]) => ({cause, kind, name, count, now: count - (old[cause] ?? (errorLog.length ? 0 : count))}));
      return [...of(p.failed, "failed"), ...of(p.refused, "refused"), ...of(p.left, "left"), ...of(p.ends, "worker ended").filter(one => !usual.includes(one.cause))];
    }).sort((a, b) => b.now - a.now || b.count - a.count);
    rows("error-rows", list.map(one => row([el("th", {scope: "row"}, one.kind + ": " + one.cause.replaceAll("_", " ")), one.name, n(one.now), n(number(one.count)), help[one.cause] || "see the guide"])), "no errors since the start");
  },
  changes() {
    rows("change-rows", (state.changes || []).map(c => row([time(c.at), c.pool, c.is_new ? "serves, as generation " + c.generation : "replaced by generation " + c.generation])), "no changes");
    const jobs = state.jobs || {list: []}, at = seconds => seconds ? new Date(seconds * 1e3).toLocaleString() : "–";
    rows("job-rows", jobs.list.filter(j => !pool || j.pool === pool).map(j => row([el("th", {scope: "row"}, j.pool + "/" + j.name), j.kind, j.state + (j.processes > 1 ? ", " + j.processes + " processes" : ""), n(number(j.starts)),
      n(j.failures ? el("strong", {class: "bad"}, number(j.failures)) : "0"), n(number(j.skipped)), el("td", {class: "wide"}, j.last_exit ? j.last_exit + ", " + at(j.last_exit_at) : "–"), at(j.next_at)])),
      state.server.view === "without requests" ? "not shown to this client: pools run as several users" : "no pool has commands or schedules");
    $("job-note").textContent = jobs.more ? jobs.more + " more" + (jobs.more === 1 ? " is" : " are") + " not shown: maitred commands lists all." : "";
    $("spans").textContent = state.spans ? "Spans: " + Object.entries(state.spans).map(([k, v]) => number(v) + " " + k).join(", ") + "." : "No section [traces]: nothing is exported.";
  },
  certificates() {
    const failed = state.hidden_failures || 0, hidden = state.hidden_certificates || 0;
    // Which of the certificates without a reason are among them is not known here.
    $("certificate-note").textContent = (failed ? many(failed, "more certificate") + " could not be got than the ones with a reason here: maitred status lists all. " : "") + (hidden ? many(hidden, "certificate") + " that end" + (hidden === 1 ? "s" : "") + " later " + (hidden === 1 ? "is" : "are") + " not shown." : "");
    rows("certificate-rows", (state.certificates || []).map(c => {
      const days = c.until === undefined ? null : Math.floor((c.until * 1e3 - Date.now()) / 864e5);
      const left = days === null ? "–" : String(days);
      return row([el("td", {class: "wide"}, (c.names || []).join(", ")), c.until === undefined ? "not issued yet" : new Date(c.until * 1e3).toISOString().slice(0, 10), n(days !== null && days < 14 ? el("strong", {class: days < 3 ? "bad" : "warn"}, left) : left),
        el("td", {class: "wide"}, !c.error ? (failed ? "may have failed: see above" : "–") : "failed " + many(c.failures, "time") + ": " + c.error + (c.next ? "; next " + new Date(c.next * 1e3).toLocaleString() : ""))]);
    }), "no certificates: plain HTTP, or another server ends TLS");
  },
};

draw.nodes = () => {
  const known = state.nodes;
  $("nodes-note").textContent = state.server.view === "without requests" ? "Nodes are not shown to this client: pools run as several users."
    : !known ? "Only this node is known here: with a purge log (purge_log), nodes show each other their load."
    : known.problem ? "The purge log is not reached, so this is not current: " + known.problem + "."
    : "The nodes with the same purge log; each announces itself every five seconds." + (known.more ? " " + many(known.more, "more node") + (known.more === 1 ? " is" : " are") + " not shown." : "");
  rows("node-rows", nodes().map(one => {
    // What another node has written is only a link if it leads to a host.
    const name = one.url && !one.here && /^https?:\/\/[\w.:[\]-]+$/.test(one.url) ? el("a", {href: one.url + "/dashboard", rel: "noreferrer"}, one.name) : one.name;
    const problem = nodeProblem(one);
    return row([el("th", {scope: "row"}, name, one.here ? " (this node)" : ""), problem ? el("strong", {class: "bad"}, problem) : "ready", n(percent(one.saturation)), limits[one.nearest] || one.nearest,
      n((one.requests / 60).toFixed(one.requests < 600 ? 1 : 0)), n(ms(one.wait)), n(one.failed ? el("strong", {class: "bad"}, number(one.failed)) : "0"), one.version], one.here ? {class: "chosen"} : {});
  }), known ? "no node has announced itself yet" : "no other node is known");
};

async function topPages() {
  const response = await fetch("/dashboard/pages", {cache: "no-store"}).catch(() => null);
  const pages = response && response.ok ? await response.json() : [];
  rows("page-rows", pages.map(([site, url, hits, bytes]) => {
    const purge = el("button", {type: "button", "aria-label": "purge " + url}, "purge");
    purge.addEventListener("click", () => purgePage(url));
    return row([el("td", {class: "wide"}, url), site, n("about " + number(hits)), n(mib(bytes / 2 ** 20)), state.purges ? purge : "–"]);
  }), response && response.ok ? "no page in memory was sent yet" : "pages are shown with the token (admin_token)");
}
async function purgePage(url) {
  // A header of its own, which no other host's page can send: not the password that a browser sends by itself.
  const response = await fetch("/dashboard/purge?url=" + encodeURIComponent(url), {method: "POST", headers: {"X-Maitred-Purge-Token": $("token").value}}).catch(() => null);
  $("purged").textContent = response && response.ok ? "purged " + url : "not purged: " + (response ? (await response.text()).split("\n")[0] : "no connection");
  if (response && response.ok) topPages();
}
$("top-pages").addEventListener("click", topPages);

async function openRequest(number) {
  const card = $("request"), response = await fetch("/dashboard/request?n=" + number, {cache: "no-store"}).catch(() => null);
  card.hidden = false;
  if (!response || !response.ok) { card.replaceChildren(el("p", {}, "This request is not remembered any more.")); card.focus(); return; }
  const r = await response.json(), known = value => value !== undefined && value !== null;
  const split = [known(r.boot) ? r.queue - r.boot : r.queue, r.cpu, r.core_wait, r.blocked, r.boot];
  const facts = [["took", ms(r.took)], ["status", r.status], ["pool", r.pool], ["in the queue", known(r.queue) && ms(r.queue)], ["of that, a worker was starting", known(r.boot) && ms(r.boot)],
    ["in the script", known(r.script) && ms(r.script)], ["on a processor", known(r.cpu) && ms(r.cpu)], ["waiting for a processor", known(r.core_wait) && ms(r.core_wait)], ["blocked", known(r.blocked) && ms(r.blocked)],
    ["child processes on a processor", r.children > 0 && ms(r.children)], ["peak memory", known(r.memory) && mib(r.memory / 2 ** 20)], ["page cache", r.cache], ["upstream", r.upstream], ["request id", r.id], ["trace", r.trace]].filter(([, value]) => known(value) && value !== false);
  card.replaceChildren(el("h3", {}, r.request), el("p", {}, new Date(r.at).toLocaleString()), ...split.some(known) ? [bar(split, describe(split))] : [],
    el("dl", {}, ...facts.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value)))),
    ...(r.lines || []).length ? [el("h4", {}, "Log lines"), el("pre", {tabindex: "0"}, r.lines.join("\n"))]
      : [el("p", {}, state.server.view === "whole" ? "No log lines." : "Log lines are shown with the token (admin_token).")]);
  card.focus();
}

const W = 1200, LEFT = 62;
// An hour has 360 columns; a younger history has wider ones.
const columns = samples => Math.max(60, samples.length);
function frame(height) {
  return el("svg:svg", {viewBox: "0 0 " + W + " " + height, "aria-hidden": "true"});
}
function axis(svg, samples, height) {
  const all = columns(samples), at = index => LEFT + (W - LEFT) * (all - samples.length + index + 0.5) / all;
  samples.forEach((s, index) => {
    const minutes = Math.round(s.at / 6e4), is = Math.abs(s.at - minutes * 6e4) <= 5000 && minutes % (all > 180 ? 10 : all > 60 ? 5 : 1) === 0;
    if (is) svg.append(el("svg:text", {x: at(index), y: height - 4, "text-anchor": "middle"}, new Date(minutes * 6e4).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit"})));
  });
}
function heat(samples) {
  const bounds = (history_ && history_.powers) || [], lines = bounds.length + 1, high = 16, height = lines * high + 20, svg = frame(height);
  const name = us => us < 1e6 ? Math.round(us / 1e3) + " ms" : (us / 1e6).toFixed(us < 1e7 ? 1 : 0) + " s";
  for (let line = 0; line < lines; line++)
    svg.append(el("svg:text", {x: LEFT - 6, y: (lines - line) * high - 4, "text-anchor": "end"}, line < bounds.length ? "< " + name(2 ** bounds[line]) : "longer"));
  const most = Math.max(1, ...samples.flatMap(s => s.times)), all = columns(samples), wide = (W - LEFT) / all;
  samples.forEach((s, index) => s.times.forEach((count, line) => {
    if (count) svg.append(el("svg:rect", {class: "cell", x: LEFT + wide * (all - samples.length + index), y: (lines - line - 1) * high + 1, width: wide + 0.2, height: high - 1, "fill-opacity": (0.15 + 0.85 * Math.sqrt(count / most)).toFixed(2)}));
  }));
  axis(svg, samples, height);
  $("heat").replaceChildren(svg);
  const total = samples.reduce((sum, s) => s.times.map((count, i) => count + (sum[i] || 0)), []), count = total.reduce((a, b) => a + b, 0);
  let below = 0, half = -1, most99 = -1;
  total.forEach((value, i) => { below += value; if (half < 0 && below * 2 >= count) half = i; if (most99 < 0 && below * 100 >= count * 99) most99 = i; });
  const bound = i => i < bounds.length ? "below " + name(2 ** bounds[i]) : "longer than " + name(2 ** bounds[bounds.length - 1]);
  $("heat").setAttribute("aria-label", count ? count + " scripts in " + Math.round(samples.length / 6) + " minutes: half of them " + bound(half) + ", 99 % " + bound(most99) : "no scripts yet");
}
function split(samples) {
  const high = 140, height = high + 20, svg = frame(height), all = columns(samples), wide = (W - LEFT) / all;
  const mean = samples.map(s => s.parts.map(value => s.scripts ? value / s.scripts / 1e3 : 0));
  const most = Math.max(1, ...mean.map(m => m.reduce((a, b) => a + b, 0)));
  for (const part of [0, 0.5, 1]) {
    const y = high - part * (high - 14);
    svg.append(el("svg:line", {class: "axis", x1: LEFT, x2: W, y1: y, y2: y}), el("svg:text", {x: LEFT - 6, y: y + 4, "text-anchor": "end"}, ms(most * part)));
  }
  mean.forEach((m, index) => {
    let base = high;
    m.forEach((value, part) => {
      const tall = value / most * (high - 14);
      base -= tall;
      if (tall > 0.2) svg.append(el("svg:rect", {class: parts[part][0], x: LEFT + wide * (all - samples.length + index), y: base, width: wide + 0.2, height: tall}));
    });
  });
  axis(svg, samples, height);
  $("split").replaceChildren(svg);
  const sums = samples.reduce((sum, s) => s.parts.map((value, i) => value + (sum[i] || 0)), []);
  $("split").setAttribute("aria-label", describe(sums));
}

function header() {
  const s = state.server, figures = [["load", percent(s.saturation || 0) + " of " + ({cpu: "processors", memory: "memory", max_children: "max_children", front: "front threads"}[s.nearest] || s.nearest)], ["processors used", (s.cores || 0).toFixed(2)], ["connections", number(s.connections)], ["requests/s", number(Object.values(rates).reduce((a, b) => a + b, 0))]];
  $("version").textContent = s.version;
  $("figures").replaceChildren(...figures.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value))));
  set(s.ready ? "ready" : "not ready: " + s.reason, s.ready ? "good" : "bad");
  const hidden = s.hidden_pools ? s.hidden_pools + " pools with fewer requests are not shown. " : "";
  const masked = {"whole": "", "without queries": "Query strings are hidden from clients without the token. ", "without requests": "Pools run as several users: requests are hidden from clients without the token. "}[s.view];
  $("footnote").textContent = hidden + masked + "An hour of history is held in memory." + (state.purges ? "" : " Read only.");
  const names = poolNames().sort(), known = [...$("pool").options].slice(1).map(o => o.value);
  if (names.join() !== known.join()) {
    $("pool").replaceChildren(el("option", {value: ""}, "all"), ...names.map(name => el("option", {value: name}, name)));
    $("pool").value = pool;
  }
}
function set(text, level) { if ($("state").textContent !== text) $("state").textContent = text; $("state").className = level; }
function view() { const name = location.hash.slice(1); return views.includes(name) ? name : "pools"; }
function show() {
  const now = view();
  for (const name of views) $(name).hidden = name !== now;
  for (const link of document.querySelectorAll("nav a"))
    if (link.hash === "#" + now) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  $("chooser").hidden = ["certificates", "nodes"].includes(now);
  if (state) { header(); draw[now](); }
}
function count() {
  const now = Date.now(), counts = {};
  for (const [name, p] of Object.entries(state.pools || {})) {
    counts[name] = {...p.failed, ...p.refused, ...p.left, ...p.ends};
    const old = before && before.requests[name], span = before ? (now - before.at) / 1e3 : 0;
    if (old !== undefined && span > 0.2) rates[name] = 0.5 * (rates[name] || 0) + 0.5 * Math.max(0, p.requests - old) / span;
  }
  for (const name of Object.keys(rates)) if (!(name in counts)) delete rates[name];
  before = {at: now, requests: Object.fromEntries(Object.entries(state.pools || {}).map(([name, p]) => [name, p.requests]))};
  errorLog.push(counts);
  if (errorLog.length > 60) errorLog.shift();
}
function connect() {
  if (source) source.close();
  source = new EventSource("/dashboard/events" + (pool ? "?pool=" + encodeURIComponent(pool) : ""));
  source.addEventListener("state", event => { state = JSON.parse(event.data); count(); show(); document.body.dataset.live = "yes"; });
  source.addEventListener("history", event => { history_ = JSON.parse(event.data); show(); });
  source.addEventListener("patch", event => { if (state) { state = merge(state, JSON.parse(event.data)); } });
  source.addEventListener("sample", event => {
    const s = JSON.parse(event.data);
    for (const which of ["all", "pool"]) if (history_ && s[which]) { history_[which] = [...(history_[which] || []), s[which]].slice(-360); }
  });
  source.onerror = () => {
    set("no connection: trying again …", "bad");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}
setInterval(() => { if (state && source.readyState === EventSource.OPEN) { count(); if (!document.hidden) show(); } }, 1000);
addEventListener("hashchange", () => { show(); $("main").focus({preventScroll: true}); scrollTo(0, 0); });
$("pool").addEventListener("change", event => { pool = event.target.value; connect(); });
for (const which of ["time", "memory"]) $("by-" + which).addEventListener("click", () => {
  order = which;
  $("by-time").setAttribute("aria-pressed", which === "time"); $("by-memory").setAttribute("aria-pressed", which === "memory");
  show();
});
$("split-legend").append(...parts.flatMap(([name, text]) => [el("i", {class: name}), text]));
show(); connect();
