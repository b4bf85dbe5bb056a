// Calls that are approved in advance: who granted what, until when, and how often it was used.

import { call } from "../api/client.js";
import { attempt, can, notify } from "../state.js";
import { useLoad } from "../ui/load.js";
import { Button, Card, count } from "../ui/parts.js";
import { Text } from "../ui/text.js";
import { Left } from "../ui/time.js";

export function Grants() {
  const loaded = useLoad(
    "listGrants",
    can("listGrants") ? {} : undefined,
    (event) => (event.type === "changed" && event.topic === "grant") || event.type === "approvals",
  );
  const active = loaded.data?.grants.filter(({ state }) => state === "active") ?? [];
  if (active.length === 0) return null;
  const revoke = (id: string): Promise<boolean> =>
    attempt(async () => {
      await call("revokeGrant", { id });
      notify("good", "Revoked. The next such call needs an approval again.");
      loaded.reload();
    });
  return (
    <Card title="Grants in force" flush>
      <ul class="rows">
        {active.map(({ id, bound, by, used }) => (
          <li key={id}>
            <div>
              <strong class="mono">
                <Text>{bound.tool}</Text>
              </strong>
              <div class="soft">
                <Text>{bound.agent}</Text> of <Text>{bound.app}</Text>, by <Text>{by}</Text>
              </div>
              <div class="soft">
                <Left until={bound.until} /> · {count(used, "call")}
              </div>
            </div>
            {can("revokeGrant") && <Button onClick={() => revoke(id)}>Revoke</Button>}
          </li>
        ))}
      </ul>
    </Card>
  );
}
