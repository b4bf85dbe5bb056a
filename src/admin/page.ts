// The page on which an approver answers a request. It is empty by itself: it loads its content from the admin port, with the
// credential that the approver enters. No script or style but its own.

export const PAGE_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
} as const;

export const APPROVAL_PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Approve a call · Portcullis</title>
<link rel="stylesheet" href="/approve.css">
</head>
<body>
<header><strong>Portcullis</strong><span>approval</span></header>
<main>
<form id="credential" autocomplete="off" hidden>
<h1>Calls wait for approval</h1>
<label for="token">Your approver's credential</label>
<div class="row">
<input id="token" type="password" required autofocus autocomplete="off" spellcheck="false" aria-describedby="hint">
<button type="submit" class="main">Show the call</button>
</div>
<p id="hint">The text in <code>operator.token</code> of the gateway's data directory, or a key that may approve. Without typing: <code>portcullis approvals open</code>.</p>
</form>
<p id="problem" role="alert" hidden></p>
<section id="list" hidden aria-live="polite">
<h1>Calls that wait for approval</h1>
<p id="none">No call waits.</p>
<ul id="calls"></ul>
</section>
<section id="call" hidden aria-live="polite">
<p id="state"></p>
<h1 id="tool"></h1>
<p id="reason"></p>
<h2>Arguments, in full</h2>
<pre id="arguments" tabindex="0"></pre>
<div id="forwarded-part" hidden>
<h2>Sent beside the arguments</h2>
<pre id="forwarded" tabindex="0"></pre>
</div>
<dl>
<dt>Asked by</dt><dd id="who"></dd>
<dt>Rule</dt><dd id="rules"></dd>
<dt>Waits until</dt><dd id="until"></dd>
</dl>
<div id="answer">
<label for="why">Reason, which the agent reads when you deny</label>
<textarea id="why" rows="2" maxlength="2000"></textarea>
<div class="buttons">
<button id="deny" type="button">Deny</button>
<button id="approve" type="button">Approve this one call</button>
</div>
</div>
</section>
</main>
<script src="/approve.js"></script>
</body>
</html>
`;

export const APPROVAL_STYLE = `:root {
  color-scheme: light dark;
  --page: light-dark(#f4f5f7, #14161a); --card: light-dark(#fff, #1d2026); --ink: light-dark(#16181d, #eceef2);
  --soft: light-dark(#59606c, #a2a9b6); --line: light-dark(#d5d9e0, #363b45); --code: light-dark(#f4f5f7, #14161a);
  --yes: light-dark(#17663a, #2f9e5f); --no: light-dark(#b3261e, #f28b82); --wait: light-dark(#8a5a00, #f0bf5c);
  font: 16px/1.5 system-ui, sans-serif;
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--page); color: var(--ink); }
header, main { max-width: 44rem; margin: 0 auto; padding: 0 1rem; }
main { padding-bottom: 2rem; }
header { display: flex; gap: .5rem; padding-top: 1.25rem; padding-bottom: .75rem; }
header span, #hint, dt { color: var(--soft); }
form, section { background: var(--card); border: 1px solid var(--line); border-radius: .75rem; padding: 1.5rem; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2, label { display: block; font-size: .95rem; font-weight: 600; margin: 0 0 .4rem; }
p { margin: 0; }
.row, .buttons { display: flex; flex-wrap: wrap; gap: .6rem; }
input, textarea { flex: 1 1 14rem; width: 100%; min-width: 0; font: inherit; padding: .5rem .75rem; color: inherit; background: var(--card); border: 1px solid var(--soft); border-radius: .5rem; }
textarea { resize: vertical; }
button { font: inherit; font-weight: 600; padding: .5rem 1.1rem; border: 1px solid transparent; border-radius: .5rem; cursor: pointer; }
button.main { background: var(--ink); color: var(--card); }
#approve { background: var(--yes); color: light-dark(#fff, #0b1d12); }
#deny { background: transparent; border-color: var(--no); color: var(--no); }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 3px solid light-dark(#2563eb, #8ab4ff); outline-offset: 2px; }
#hint { font-size: .9rem; margin-top: .6rem; }
#problem { margin: 1rem 0; padding: .6rem 1rem; background: var(--card); border: 1px solid var(--no); border-left-width: .35rem; border-radius: .5rem; }
#state { display: inline-block; margin-bottom: .75rem; padding: .1rem .7rem; border: 1px solid; border-radius: 1rem; font-size: .9rem; font-weight: 600; }
#state[data-state=pending] { color: var(--wait); }
#state[data-state=approved] { color: var(--yes); }
#state[data-state=denied] { color: var(--no); }
h1#tool { font-family: ui-monospace, monospace; margin-bottom: .35rem; }
h2 { margin-top: 1.5rem; }
pre { margin: 0 0 1.25rem; padding: .8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--code); border: 1px solid var(--line); border-radius: .5rem; font: .9rem/1.5 ui-monospace, monospace; }
code { font: .95em ui-monospace, monospace; }
#calls { margin: 0; padding-left: 1.25rem; overflow-wrap: anywhere; }
#calls a { font-family: ui-monospace, monospace; color: inherit; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.25rem; margin: 0; font-size: .95rem; }
dd { margin: 0; overflow-wrap: anywhere; }
#answer { margin-top: 1.5rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
.buttons { margin-top: .9rem; justify-content: flex-end; }
@media (max-width: 30rem) {
  form, section { padding: 1.1rem; }
  .row button, .buttons button { flex: 1 1 100%; }
  .buttons { flex-direction: column-reverse; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
}
`;

export const APPROVAL_SCRIPT = `"use strict";
(() => {
  const id = location.pathname.startsWith("/approve/") ? location.pathname.split("/").pop() : undefined;
  const LIST_MS = 2000;
  const at = (name) => document.getElementById(name);
  let token = "";
  const problem = (text) => {
    at("problem").textContent = text;
    at("problem").hidden = text === "";
  };
  // Half of what a signed-in browser has; the other half is a cookie that no script reads.
  const credential = () =>
    token ? { authorization: "Bearer " + token } : { "portcullis-page-key": localStorage.getItem("page-key") || "" };
  async function signIn(code) {
    localStorage.setItem("page-key", (await ask("/v1/sign-in", { code })).page_key);
    token = "";
  }
  async function ask(path, body) {
    const response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: { ...credential(), "content-type": "application/json" },
      body: body ? JSON.stringify(body) : undefined,
      cache: "no-store",
    });
    const answer = await response.json();
    if (response.ok) return answer;
    throw new Error(answer.error ? answer.error.reason : "HTTP " + response.status);
  }
  // Laid out by its brackets and never read: escapes of characters that cannot be seen would become those characters.
  function laidOut(text) {
    let out = "";
    let depth = 0;
    const line = () => "\\n" + "  ".repeat(Math.min(depth, 32));
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (c === '"') {
        let end = i + 1;
        while (end < text.length && text[end] !== '"') end += text[end] === "\\\\" ? 2 : 1;
        out += text.slice(i, end + 1);
        i = end;
      } else if (c === "{" || c === "[") {
        const isEmpty = text[i + 1] === "}" || text[i + 1] === "]";
        depth++;
        out += isEmpty ? c : c + line();
      } else if (c === "}" || c === "]") {
        depth--;
        out += text[i - 1] === "{" || text[i - 1] === "[" ? c : line() + c;
      } else out += c === "," ? c + line() : c === ":" ? ": " : c;
    }
    return out;
  }
  function show(call) {
    at("credential").hidden = true;
    at("call").hidden = false;
    const waits = call.state === "pending";
    const because = call.deny_reason ? ": " + call.deny_reason : "";
    at("state").textContent = waits ? "waits for you" : call.state + (call.decided_by ? " by " + call.decided_by : "") + because;
    at("state").dataset.state = call.state;
    at("who").textContent = call.agent + " of " + call.app;
    at("tool").textContent = call.tool;
    at("reason").textContent = call.reason;
    at("rules").textContent = call.rules.map((rule) => rule.id + (rule.file ? " (" + rule.file + ":" + rule.line + ")" : "")).join(", ");
    at("until").textContent = new Date(call.expires_at).toLocaleString();
    at("arguments").textContent = laidOut(call.arguments);
    at("forwarded").textContent = laidOut(call.forwarded);
    at("forwarded-part").hidden = call.forwarded === "{}";
    at("answer").hidden = !waits;
  }
  async function answer(verdict) {
    for (const name of ["approve", "deny"]) at(name).disabled = true;
    problem("");
    try {
      const reason = at("why").value;
      show(await ask("/v1/approvals/" + encodeURIComponent(id) + "/" + verdict, reason ? { reason } : {}));
    } catch (error) {
      problem(error.message);
    }
    for (const name of ["approve", "deny"]) at(name).disabled = false;
  }
  async function list() {
    const { approvals } = await ask("/v1/approvals?state=pending");
    at("credential").hidden = true;
    at("list").hidden = false;
    at("none").hidden = approvals.length > 0;
    at("calls").replaceChildren(
      ...approvals.map((call) => {
        const link = document.createElement("a");
        link.href = "/approve/" + encodeURIComponent(call.id);
        link.textContent = call.tool + " " + call.arguments_preview;
        const item = document.createElement("li");
        item.append(link, " " + call.agent + " of " + call.app + ". " + call.reason);
        return item;
      }),
    );
  }
  async function start() {
    if (id) return show(await ask("/v1/approvals/" + encodeURIComponent(id)));
    await list();
    setInterval(() => list().catch((error) => problem(error.message)), LIST_MS);
  }
  at("credential").addEventListener("submit", async (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    problem("");
    try {
      // The list leads to other pages: they need a session, which only the operator can have.
      if (!id) await ask("/v1/sign-in-links", {}).then(({ code }) => signIn(code)).catch(() => {});
      await start();
    } catch (error) {
      problem(error.message);
    }
  });
  async function open() {
    const code = location.hash.slice(1);
    let refused = "";
    if (code) {
      history.replaceState(null, "", location.pathname);
      await signIn(code).catch((error) => { refused = error.message; });
    }
    if (localStorage.getItem("page-key")) {
      try {
        return await start();
      } catch {
        localStorage.removeItem("page-key");
      }
    }
    at("credential").hidden = false;
    at("token").focus();
    problem(refused);
  }
  void open();
  at("approve").addEventListener("click", () => answer("approve"));
  at("deny").addEventListener("click", () => answer("deny"));
})();
`;
