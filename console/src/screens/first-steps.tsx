// The tour of the demonstration: three calls, of which one is permitted, one denied and one needs an approval.

import { hrefOf } from "../router.js";
import { Icon } from "../ui/icon.js";
import { useLoad } from "../ui/load.js";
import { Card } from "../ui/parts.js";

const STEPS = [
  ["permit", "A call that policy permits", "portcullis call notes.list"],
  ["deny", "A call that policy denies", `portcullis call shell.run '{"command":"ls"}'`],
  ["challenge", "A call that needs you", `portcullis call notes.delete '{"title":"demo/x"}'`],
] as const;

export function FirstSteps() {
  const loaded = useLoad("listDecisions", { limit: 100 }, ({ type }) => type === "decisions");
  const items = loaded.data?.items ?? [];
  if (!loaded.data) return null;
  const done = STEPS.map(([effect]) => items.find((decision) => decision.effect === effect));
  if (done.every(Boolean)) return null;
  return (
    <Card title="First steps" actions={<span class="soft">in a terminal, while this page is open</span>}>
      <ol class="steps">
        {STEPS.map(([effect, title, command], i) => {
          const decision = done[i];
          return (
            <li key={effect} class={decision ? "done" : undefined}>
              <span class="step-mark" aria-hidden="true">
                {decision ? <Icon name="check" /> : i + 1}
              </span>
              <div>
                {decision ? (
                  <a href={effect === "challenge" ? hrefOf("approvals") : hrefOf("decisions", [decision.id])}>
                    {title}
                  </a>
                ) : (
                  <strong>{title}</strong>
                )}
                <div>
                  <code>{command}</code>
                </div>
              </div>
            </li>
          );
        })}
      </ol>
    </Card>
  );
}
