import fc from "fast-check";
import { expect, it } from "vitest";
import { attempts, MARK, setScene, withoutEcho } from "./isolation.js";

const ATTEMPTS = Number(process.env.ATTEMPTS ?? (process.env.CI ? 2_000 : 10_000));

it(`none of ${ATTEMPTS} attempts of one application on another succeeds`, async () => {
  const scene = await setScene();
  try {
    const { deployment, attacker, foreign } = scene;
    await fc.assert(
      fc.asyncProperty(attempts(scene), async ({ body, headers }) => {
        const { text } = await deployment.post(attacker, body, headers);
        expect(withoutEcho(text, body)).not.toContain(MARK);
      }),
      { numRuns: ATTEMPTS },
    );
    expect(foreign.calls).toEqual([]);
  } finally {
    await scene.close();
  }
});
