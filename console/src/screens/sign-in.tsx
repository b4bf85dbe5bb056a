import { useState } from "preact/hooks";
import type { ApiError } from "../api/client.js";
import { Gate } from "../app.js";
import { signIn, signInProblem } from "../state.js";
import { Icon } from "../ui/icon.js";
import { Button, Field, Form } from "../ui/parts.js";
import { Text } from "../ui/text.js";

export function SignIn() {
  const [credential, setCredential] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    signInProblem.value = "";
    try {
      await signIn({ credential: credential.trim() });
    } catch (error) {
      signInProblem.value = (error as ApiError).message;
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="sign-in">
      <div class="sign-in-card">
        <div class="brand">
          <Gate />
          <span>Portcullis</span>
        </div>
        <h1>Sign in</h1>
        {signInProblem.value && (
          <div class="problem" role="alert">
            <Icon name="warning" />
            <p>
              <Text>{signInProblem.value}</Text>
            </p>
          </div>
        )}
        <Form onSubmit={submit}>
          <Field
            label="Operator token or approver key"
            id="credential"
            type="password"
            value={credential}
            onInput={setCredential}
            required
            autofocus
            hint="The operator token is in operator.token of the data directory. An approver key is an API key that may approve."
          />
          <Button kind="primary" type="submit" disabled={isBusy}>
            {isBusy ? "Signing in …" : "Sign in"}
          </Button>
        </Form>
        <p class="soft">
          Without typing: run <code>portcullis console</code> where the gateway runs, and follow its one-time link.
        </p>
      </div>
    </main>
  );
}
