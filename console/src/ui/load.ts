// Loads the result of an operation for a component, again when its input changes or something happened.

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { AdminEvent, OperationInput, OperationResult } from "../../../src/admin/operations.js";
import type { OperationName } from "../../../src/admin/routes.js";
import { type ApiError, call } from "../api/client.js";
import { onEvent } from "../state.js";

export interface Loaded<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly isLoading: boolean;
  reload(): void;
}

/** Undefined as input loads nothing. The last result stays while the next one is loaded. */
export function useLoad<N extends OperationName>(
  name: N,
  input: OperationInput<N> | undefined,
  isAffected?: (event: AdminEvent) => boolean,
): Loaded<OperationResult<N>> {
  const [state, set] = useState<Omit<Loaded<OperationResult<N>>, "reload"> & { of: string }>({
    data: undefined,
    error: undefined,
    isLoading: input !== undefined,
    of: "",
  });
  const [turn, setTurn] = useState(0);
  const key = input === undefined ? "" : JSON.stringify(input);
  useEffect(() => {
    if (input === undefined) return;
    const ended = new AbortController();
    set((before) => ({ ...before, isLoading: true }));
    call(name, input, ended.signal).then(
      (data) => set({ data, error: undefined, isLoading: false, of: key }),
      (error: ApiError) => {
        if (!ended.signal.aborted) set((before) => ({ ...before, error, isLoading: false, of: key }));
      },
    );
    return () => ended.abort();
  }, [name, key, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  useEvents((event) => {
    if (event.type === "reset" || isAffected?.(event)) reload();
  });
  return { ...state, data: state.of === key || input === undefined ? state.data : undefined, reload };
}

/** Calls the listener, as it is at that moment, for each event. */
export function useEvents(listener: (event: AdminEvent) => void): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => onEvent((event) => latest.current(event)), []);
}

/** Keys of the keyboard, unless a field has the focus or a dialog is open. */
export function useKeys(keys: Readonly<Record<string, () => void>>): void {
  const latest = useRef(keys);
  latest.current = keys;
  // Before the screen is drawn: what can be seen can be answered.
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      if (target.closest("input, textarea, select, [contenteditable], dialog, .editor")) return;
      const run = latest.current[event.key];
      if (!run) return;
      event.preventDefault();
      run();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
