// The policy a first run begins with: short enough to read, and an example of every answer there is.

export const DEFAULT_POLICY = `// Who may call what. Save this file and the new rules hold at once; a mistake is refused and the old rules stay.
//
//   permit (who, action == Action::"tool", resource) when { a condition on context.arguments };
//   forbid ...                                       wins over every permit
//   nothing said                                     denied
//
// Try:  portcullis policy check                      is this file right?
//       portcullis policy explain notes.delete '{"title":"a"}'
//       portcullis audit tail                        what was decided, and why

@id("read-things")
permit (principal in App::"local", action in [Action::"clock.now", Action::"math.add", Action::"notes.list"], resource);

@id("write-short-notes")
permit (principal in App::"local", action == Action::"notes.write", resource)
when { context.arguments.title like "demo/*" };

// A person has to say yes first.
@id("delete-needs-a-person")
@outcome("challenge")
@approvers("operators")
@reason("Deleting a note needs a person's approval.")
forbid (principal, action == Action::"notes.delete", resource)
unless { context.approved };

@id("delete-when-approved")
permit (principal in App::"local", action == Action::"notes.delete", resource);

// Never, whatever else is permitted.
@id("no-shell")
@reason("Nobody runs a shell through this gateway.")
forbid (principal, action == Action::"shell.run", resource);

// Resources and prompts that the demonstration offers.
@id("read-resources")
permit (principal in App::"local", action in [Action::"resources/read", Action::"prompts/get"], resource);
`;

/** What a gateway of applications begins with: nothing is permitted to all of them. */
export const COMMON_POLICY = `// Rules here hold for every application, beside its own; save this file and they hold at once.
// A forbid here cannot be undone by an application:
//
//   @id("no-shell")
//   forbid (principal, action in Action::"tools/call", resource)
//   when { resource.name like "*shell*" };
`;
