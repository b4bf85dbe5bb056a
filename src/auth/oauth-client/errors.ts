/** Something between us and an authorization server went wrong. Messages hold no token and no secret. */
export class OAuthError extends Error {
  readonly code: OAuthErrorCode;
  constructor(code: OAuthErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "OAuthError";
    this.code = code;
  }
}

export type OAuthErrorCode =
  /** An address that may not be used, or metadata that is missing, malformed or somebody else's. */
  | "OAUTH_METADATA"
  /** No way to be known as a client there. */
  | "OAUTH_REGISTRATION"
  /** The answer to an authorization request is not ours, or says no. */
  | "OAUTH_AUTHORIZATION"
  /** The token endpoint refused. */
  | "OAUTH_TOKEN"
  /** A person has to log in. */
  | "OAUTH_LOGIN_NEEDED";
