// Which tools an application has: those whose settings it has.

import type { Tool } from "../tool/index.js";
import type { CoreApplication, CoreServices } from "./application.js";
import { frameworkTools } from "./framework.js";
import { definitionTools } from "./state/definition-tools.js";
import { valueTools } from "./state/value-tools.js";

/** Throws a `CoreSettingsError` when the settings cannot be used. */
export function coreTools(app: CoreApplication, services: CoreServices): Tool[] {
  const owner = { app, services };
  return [
    ...frameworkTools(app, services),
    ...(app.state === undefined ? [] : definitionTools(owner, app.state)),
    ...(services.values === undefined ? [] : valueTools(owner, services.values, app.state?.limits)),
  ];
}
