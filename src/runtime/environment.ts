// Variables that hold secrets leave the process's environment once they have been read: nothing that this process starts
// later can inherit them, whatever starts it. Their values stay here, for settings that are read again.

const kept = new Map<string, string>();

/** Names of what every program needs; a setting may refer to them, but they hold no secret. */
const ORDINARY = new Set("HOME LANG LC_ALL LOGNAME PATH SHELL TERM TMPDIR TZ USER HOSTNAME PWD".split(" "));

/** `environment` is the environment together with what was taken out of it. */
export function environment(): NodeJS.ProcessEnv {
  return { ...Object.fromEntries(kept), ...process.env };
}

/** `takeVariable` reads a variable and removes it from the environment. */
export function takeVariable(name: string): string | undefined {
  const value = process.env[name];
  if (value === undefined) return kept.get(name);
  if (!ORDINARY.has(name)) {
    kept.set(name, value);
    delete process.env[name];
  }
  return value;
}

const WITH_PASSWORD = /:\/\/[^/@\s]*:[^/@\s]+@/;

/** A URL with a password on the command line is replaced there: every user of the machine can list it otherwise. */
export function hideCommandLine(): void {
  if (process.argv.some((text) => WITH_PASSWORD.test(text))) process.title = "portcullis";
}
