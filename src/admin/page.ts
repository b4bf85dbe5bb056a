// The page on which a person answers a challenge. It holds nothing by itself: what it shows it asks the admin port for,
// with the credential that the person gives. No script or style but its own.

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
<main>
<h1>Portcullis</h1>
<form id="credential" autocomplete="off">
<label for="token">Your approver's credential</label>
<input id="token" type="password" required autocomplete="off" spellcheck="false">
<button type="submit">Show the call</button>
</form>
<p id="problem" role="alert" hidden></p>
<section id="call" hidden aria-live="polite">
<p id="state"></p>
<dl>
<dt>Who asks</dt><dd id="who"></dd>
<dt>What would run</dt><dd id="tool"></dd>
<dt>Why it waits</dt><dd id="reason"></dd>
<dt>Rule</dt><dd id="rules"></dd>
<dt>Until</dt><dd id="until"></dd>
</dl>
<h2>Arguments, in full</h2>
<pre id="arguments" tabindex="0"></pre>
<div id="answer">
<label for="why">Reason (the agent reads it when you deny)</label>
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

export const APPROVAL_STYLE = `:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; background: Canvas; color: CanvasText; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.1rem; letter-spacing: .04em; margin: 0 0 1.5rem; }
h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
form, .buttons { display: flex; gap: .5rem; flex-wrap: wrap; align-items: end; }
label { display: block; width: 100%; font-weight: 600; }
input, textarea { flex: 1; min-width: 14rem; width: 100%; box-sizing: border-box; font: inherit; padding: .5rem; }
button { font: inherit; padding: .5rem 1rem; cursor: pointer; border: 1px solid GrayText; border-radius: .4rem; background: ButtonFace; color: ButtonText; }
#approve { background: #14532d; border-color: #14532d; color: #fff; }
#deny { background: #7f1d1d; border-color: #7f1d1d; color: #fff; }
button:disabled { opacity: .5; cursor: default; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: 0; }
dt { color: GrayText; }
dd { margin: 0; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid GrayText; border-radius: .4rem; padding: .75rem; max-height: 24rem; overflow: auto; margin: 0; }
.buttons { margin-top: .75rem; justify-content: flex-end; }
#answer { margin-top: 1.5rem; }
#problem { border-left: .3rem solid #b91c1c; padding: .25rem .75rem; }
#state { font-weight: 600; }
`;

export const APPROVAL_SCRIPT = `"use strict";
(() => {
  const id = location.pathname.split("/").pop();
  const at = (name) => document.getElementById(name);
  let token = "";
  const problem = (text) => {
    at("problem").textContent = text;
    at("problem").hidden = text === "";
  };
  async function ask(path, body) {
    const response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: { authorization: "Bearer " + token, "content-type": "application/json" },
      body: body ? JSON.stringify(body) : undefined,
      cache: "no-store",
    });
    const answer = await response.json();
    if (response.ok) return answer;
    throw new Error(answer.error ? answer.error.reason : "HTTP " + response.status);
  }
  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }
  function show(call) {
    at("credential").hidden = true;
    at("call").hidden = false;
    const waits = call.state === "pending";
    at("state").textContent = waits ? "This call waits for you." : "This call is " + call.state + (call.decided_by ? " by " + call.decided_by : "") + ".";
    at("who").textContent = call.agent + " of " + call.app;
    at("tool").textContent = call.tool;
    at("reason").textContent = call.reason;
    at("rules").textContent = call.rules.map((rule) => rule.id + (rule.file ? " (" + rule.file + ":" + rule.line + ")" : "")).join(", ");
    at("until").textContent = new Date(call.expires_at).toLocaleString();
    // Escapes of unseen characters are left as they are: the text is only laid out, never changed.
    at("arguments").textContent = pretty(call.arguments);
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
  at("credential").addEventListener("submit", async (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    problem("");
    try {
      show(await ask("/v1/approvals/" + encodeURIComponent(id)));
    } catch (error) {
      problem(error.message);
    }
  });
  at("approve").addEventListener("click", () => answer("approve"));
  at("deny").addEventListener("click", () => answer("deny"));
})();
`;
