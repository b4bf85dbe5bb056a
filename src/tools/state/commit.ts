// Who made a change and on whose behalf, written into the commit where a caller's words cannot imitate it.

import { visible } from "../../telemetry/index.js";

export interface Author {
  readonly app: string;
  readonly agent: string;
  readonly traceId: string;
}

const MAX_SUBJECT_CHARS = 500;
const MAX_NAME_CHARS = 200;

/** The caller's words are one line; the trailers are the last paragraph, which a line above cannot join. */
export function commitMessage(words: string, author: Author): string {
  const subject = oneLine(words, MAX_SUBJECT_CHARS).trim() || "Change";
  return [
    subject,
    "",
    `App: ${oneLine(author.app, MAX_NAME_CHARS)}`,
    `Agent: ${oneLine(author.agent, MAX_NAME_CHARS)}`,
    `Trace: ${oneLine(author.traceId, MAX_NAME_CHARS)}`,
    "",
  ].join("\n");
}

export function authorEnvironment(author: Author): Record<string, string> {
  return {
    GIT_AUTHOR_NAME: personName(author.agent),
    GIT_AUTHOR_EMAIL: "agent@portcullis.invalid",
    GIT_COMMITTER_NAME: "Portcullis",
    GIT_COMMITTER_EMAIL: "gateway@portcullis.invalid",
  };
}

function oneLine(text: string, max: number): string {
  return visible(text.slice(0, max));
}

/** git drops these characters from names, and refuses a name of nothing else. */
function personName(agent: string): string {
  return (
    oneLine(agent, MAX_NAME_CHARS)
      .replace(/[<>]/g, "")
      .replace(/^[\s.,:;"'\\]+|[\s.,:;"'\\]+$/g, "") || "agent"
  );
}
